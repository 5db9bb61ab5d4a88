"""Routes for what chats wait for (A-03, A-04, S-08). Of many that answer at once, the store lets one win."""

import msgspec

from treadle.base.host_patterns import make_choice
from treadle.base.types import ChatId, make_id
from treadle.chat.state import ChatState, list_open_actions
from treadle.errors import InvalidInput
from treadle.frontends.server.replies import NOTHING, ApiReply, Problem, build_accepted, encode_reply
from treadle.frontends.server.routes.conversation import carry_out
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.tokens import get_owner
from treadle.library.commands import save_rule
from treadle.library.subagents.children import list_descendants
from treadle.ports.store import ChatFilter
from treadle.protocol import commands as c
from treadle.protocol.events import OpenAction
from treadle.protocol.http_answers import Accepted, ActionList, ActionView
from treadle.protocol.http_queries import ActionQuery
from treadle.protocol.http_requests import AnswerBody, Decision, ToolResults
from treadle.protocol.permissions import NETWORK_TOOL, Rule

MOST = 500
LOOK_BACK = 100  # Events of one commit, at most.


async def submit(call: ApiRequest) -> ApiReply:
    body = call.get_body(ToolResults)
    chat = await call.find_chat()
    if not body.results:
        raise Problem("bad_request", "The list of results is empty; send one for each open call.")
    results = tuple(c.Result(each.tool_call_id, each.output, each.is_error) for each in body.results)
    return await call.service.execute(chat, (c.SubmitResults(results),), call.key, lambda _state: NOTHING)


async def actions(call: ApiRequest) -> ApiReply:
    states = [await call.load_state()]
    if call.get_query(ActionQuery).below:
        below = await list_descendants(call.deps, states[0].chat)
        states += [await call.deps.log.load(row.chat) for row in below if row.status == "requires_action"]
    return _list_actions(states)


async def approvals(call: ApiRequest) -> ApiReply:
    return _list_actions([await call.load_state()], "permission")


async def actions_of_all(call: ApiRequest) -> ApiReply:
    waiting = ChatFilter(owner=get_owner(call.user), archived=False, status="requires_action")
    listed = await call.deps.store.list(waiting, limit=MOST)
    return _list_actions([await call.deps.log.load(each.summary.chat) for each in listed])


def _list_actions(states: list[ChatState], kind: str = "") -> ApiReply:
    views = (
        ActionView(chat=state.chat, title=state.title, action=action)
        for state in states
        for action in list_open_actions(state)
        if kind in ("", action.kind)
    )
    return encode_reply(ActionList(actions=tuple(views)))


async def decide(call: ApiRequest) -> ApiReply:
    body = call.get_body(Decision)
    state = await call.load_state()
    action_id = call.get_path_parameter("action")
    if body.decision == "allow":
        for each in _find_actions(state, action_id):
            call.service.admission.reach(call.user, make_choice(each.network))
    rule = _find_rule(call, state, action_id, body)
    command = c.Decide(action_id, body.decision, body.hash, body.feedback, body.arguments, rule=rule)
    make_reply = lambda state: encode_reply(build_accepted(state))  # noqa: E731
    return await call.service.execute(state.chat, (command,), call.key, make_reply)


async def keep_rule(call: ApiRequest, response: ApiReply) -> ApiReply:
    """Keep the rule that the answer made outside the chat's log, where it is recorded. If that fails, the same request
    does it when it is repeated; once it is done, a repetition does not bring a rule back that was revoked."""
    if response.status != 200 or call.get_body(Decision).rule is None:
        return response
    if await call.recall_step("rule") is not None:
        return response
    acceptance = msgspec.json.decode(response.body, type=Accepted)
    chat, head = ChatId(acceptance.chat), acceptance.head
    action_id = call.get_path_parameter("action")
    recorded = await call.deps.log.find_recorded_answer(chat, action_id, max(0, head - LOOK_BACK), head)
    if recorded is not None and recorded.rule is not None:
        await save_rule(call.service.agent.chat_home, recorded.rule, await call.deps.log.load(chat))
    await call.remember_step("rule", NOTHING)
    return response


def _find_actions(state: ChatState, action_id: str) -> list[OpenAction]:
    return [each for each in list_open_actions(state) if each.action == action_id]


def _find_rule(call: ApiRequest, state: ChatState, action: str, decision: Decision) -> Rule | None:
    """One of the rules that were offered with the approval; None if it is open no more: then the command is refused."""
    if (wish := decision.rule) is None:
        return None
    call.service.admission.check_scope(call.user, wish.scope)
    for each in _find_actions(state, action):
        if wish.offer >= len(each.offers):
            raise InvalidInput(f"The approval offers {len(each.offers)} rules; there is no number {wish.offer}.")
        now = call.deps.clock.now_ms()
        expires = now + round(wish.expires_s * 1000) if wish.expires_s else 0
        offered_rule = each.offers[wish.offer].rule_for(wish.scope, decision.decision)
        if offered_rule.tool == NETWORK_TOOL and offered_rule.effect == "allow":
            call.service.admission.reach(call.user, make_choice((offered_rule.pattern,)))
        return msgspec.structs.replace(offered_rule, id=make_id("r"), created_ms=now, expires_ms=expires)
    return None


async def answer(call: ApiRequest) -> ApiReply:
    return await carry_out(call, c.Answer(call.get_path_parameter("action"), call.get_body(AnswerBody).answer))


TAG = "actions"
_AT = "/api/chats/{chat}"
ROUTES = (
    Route("POST", f"{_AT}/tool-results", submit, "Hand in the results of all open calls of client tools.", 204,
          body=ToolResults, large=True,
          codes=("not_awaiting_action", "results_mismatch", "archived", "invalid_input", "config", "root_changed")),
    Route("GET", f"{_AT}/actions", actions, "See what a chat waits for, and the chats that it began.", reply=ActionList,
          query=ActionQuery),
    Route("GET", f"{_AT}/approvals", approvals, "See which approvals a chat waits for.", reply=ActionList),
    Route("GET", "/api/actions", actions_of_all, "See what all chats wait for.", reply=ActionList),
    Route("POST", f"{_AT}/approvals/{{action}}", decide, "Answer an approval.", reply=Accepted, body=Decision,
          codes=("no_such_action", "hash_mismatch", "archived", "invalid_input", "config", "root_changed"),
          finish=keep_rule),
    Route("POST", f"{_AT}/answers/{{action}}", answer, "Answer a question.", reply=Accepted, body=AnswerBody,
          codes=("no_such_action", "archived", "empty", "invalid_input", "config", "root_changed")),
)  # fmt: skip
