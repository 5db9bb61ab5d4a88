"""Routes for jobs, the background commands of a chat (S-14). Only the server on a job's machine can reach it."""

from treadle.chat.state import ChatState
from treadle.frontends.server.replies import ApiReply, encode_reply
from treadle.frontends.server.routes.conversation import carry_out
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.library.jobs import Job
from treadle.protocol import commands as c
from treadle.protocol.http_answers import Accepted, JobList
from treadle.protocol.http_queries import OutputQuery
from treadle.protocol.http_requests import JobInput, Nothing
from treadle.protocol.views import JobChanges, JobOutput, JobView


async def listing(call: ApiRequest) -> ApiReply:
    jobs = await call.service.agent.job_registry.list_jobs(await call.find_chat())
    return encode_reply(JobList(jobs=tuple(job.view for job in jobs)))


async def output(call: ApiRequest) -> ApiReply:
    query = call.get_query(OutputQuery)
    job, state = await _find_job(call)
    await call.service.require_project(state)
    return encode_reply(await job.tail(query.offset, query.limit))


async def give(call: ApiRequest) -> ApiReply:
    body = call.get_body(JobInput)
    job, state = await _find_job(call)
    await call.service.require_project(state)
    token = f"{call.key.owner}/{call.key.key}" if call.key is not None else ""
    await job.send(body.text, enter=body.enter, end=body.end, token=token)
    return await _reply_with_job(call, state, job)


async def stop(call: ApiRequest) -> ApiReply:
    job, state = await _find_job(call)
    await job.stop()
    return await _reply_with_job(call, state, job)


async def changes(call: ApiRequest) -> ApiReply:
    job, state = await _find_job(call)
    await call.service.require_project(state)
    return encode_reply(await job.changes())


async def commit(call: ApiRequest) -> ApiReply:
    job, _ = await _find_job(call)
    return await carry_out(call, c.Apply(job=job.view.job))


async def discard(call: ApiRequest) -> ApiReply:
    job, state = await _find_job(call)
    await job.discard()
    return await _reply_with_job(call, state, job)


async def _find_job(call: ApiRequest) -> tuple[Job, ChatState]:
    state = await call.load_state()
    return await call.service.agent.job_registry.find(state.chat, call.get_path_parameter("job")), state


async def _reply_with_job(call: ApiRequest, state: ChatState, job: Job) -> ApiReply:
    answer = encode_reply(await job.look())
    return await call.service.execute(state.chat, (), call.key, lambda _state: answer)


TAG = "jobs"
_AT = "/api/chats/{chat}/jobs"
_CODES = ("job_elsewhere", "invalid_input", "root_changed")
ROUTES = (
    Route("GET", _AT, listing, "List the background commands of a chat.", reply=JobList),
    Route("GET", f"{_AT}/{{job}}/output", output, "Read what a background command has written.", reply=JobOutput,
          query=OutputQuery, codes=_CODES),
    Route("POST", f"{_AT}/{{job}}/input", give, "Write to the input of a background command.", reply=JobView,
          body=JobInput, codes=(*_CODES, "tool")),
    Route("POST", f"{_AT}/{{job}}/stop", stop, "Stop a background command with everything it started.", reply=JobView,
          body=Nothing, codes=("job_elsewhere",)),
    Route("GET", f"{_AT}/{{job}}/changes", changes,
          "See what an ended background command changed and is not committed.", reply=JobChanges,
          codes=(*_CODES, "tool")),
    Route("POST", f"{_AT}/{{job}}/commit", commit, "Commit to the project what a background command has changed.",
          reply=Accepted, body=Nothing, codes=("job_elsewhere",)),
    Route("POST", f"{_AT}/{{job}}/discard", discard, "Drop what an ended background command changed.", reply=JobView,
          body=Nothing, codes=_CODES),
)  # fmt: skip
