"""The checker: the invariants of a chat, which must hold after any fault in the processes that drove it. Every check
looks at real things (records, files, /proc, the bytes a provider got) and returns sentences; an empty list means that
all is well.

`check` makes all checks that need only a store. Tests add those that need more: counter files, the events that a client
saw, a canary, a marker in the environment of everything they started. Knows nothing of how the faults came about."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from treadle.base.types import CallKey, ChatId
from treadle.chat import snapshot
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, build_summary
from treadle.chat.transcript import build_entries
from treadle.ports.store import Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.events import Envelope
from treadle.protocol.files import FileState, encode_path
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.testing.histories import check_history, check_requests

Problems = list[str]
READS = 10  # how often a chat is read again because events were added meanwhile


async def check(store: Store, chat: ChatId, *, is_idle: bool = True) -> Problems:
    """Everything that the store can answer. `is_idle`: the chat is idle, so nothing may be open."""
    for _ in range(READS):
        head = await store.read_head(chat)
        records, listed = await store.read(chat), await store.get(chat)
        stored_snapshot = await store.load_snapshot(chat)
        if await store.read_head(chat) == head:  # a title or the end of a job is also added to a chat at rest
            break
    envelopes = [wire.decode(chat, record) for record in records]
    state = fold_all(ChatState(chat=chat), envelopes)
    problems = check_sequence(records)
    if head != len(records):
        problems.append(f"the head is {head}, the log has {len(records)} records")
    for check_log in (check_results, check_turns, check_checks):
        problems += check_log(envelopes, is_idle=is_idle)
    problems += check_summary(state, listed.summary)
    problems += check_folds(chat, envelopes, stored_snapshot.body if stored_snapshot else None)
    problems += check_histories(chat, envelopes)
    if is_idle and (listed.summary.runnable or state.run is not None):
        problems.append(f"the chat should be at rest, but it is {listed.summary.status}")
    return problems


def check_sequence(records: Sequence[Record]) -> Problems:
    """seq is 1, 2, 3 … without a gap and without a repetition; epochs never go back."""
    places = enumerate(records, 1)
    problems = [f"record {place} has seq {record.seq}" for place, record in places if record.seq != place]
    epoch = 0
    for record in records:
        if record.epoch and record.epoch < epoch:
            problems.append(f"seq {record.seq} was written under epoch {record.epoch}, after epoch {epoch} had written")
        epoch = max(epoch, record.epoch)
    return problems


def check_results(log: Sequence[Envelope], *, is_idle: bool = True) -> Problems:
    """Every call has one result, after its request and intent and before the next model call; intents are in order."""
    problems: Problems = []
    order: list[CallKey] = []
    intents: Counter[CallKey] = Counter()
    results: Counter[CallKey] = Counter()
    answered_calls: set[str] = set()
    elicitations: dict[str, CallKey] = {}
    answers = [envelope.data for envelope in log if isinstance(envelope.data, e.PermissionCompleted)]
    denied_calls = {answer.action for answer in answers if answer.decision == "deny"}
    for envelope in log:
        match envelope.data:
            case e.UserInputRequested(action=action, call=call, purpose="elicitation"):
                elicitations[action] = call
            case e.UserInputCompleted(action=action) if action in elicitations:
                answered_calls.add(elicitations[action])
            case e.ExecutionStart(call=call) if call in answered_calls and not results[call]:
                answered_calls.remove(call)  # it goes on after an answer
            case e.AssistantMessage(tool_requests=requests):
                problems += _find_unanswered_calls(order, results, f"the message at seq {envelope.seq}")
                order = [request.call for request in requests]
                problems += [f"call {call} was requested twice" for call in order if call in results]
            case e.TrialStart(call=call):
                if call not in order or results[call] or intents[call]:
                    problems.append(f"seq {envelope.seq}: a trial of call {call}, which was not to be tried")
            case e.ExecutionStart(call=call):
                intents[call] += 1
                if call not in order or results[call] or intents[call] > 1:
                    problems.append(f"seq {envelope.seq}: an intent for call {call}, which was not to be started")
                elif any(intents[later] for later in order[order.index(call) + 1 :]):
                    problems.append(f"seq {envelope.seq}: call {call} was started after a later one")
            case e.ExecutionComplete(call=call, synthetic=synthetic):
                results[call] += 1
                if call not in order:
                    problems.append(f"seq {envelope.seq}: a result for call {call}, which nobody requested")
                elif results[call] > 1:
                    problems.append(f"seq {envelope.seq}: call {call} has {results[call]} results")
                elif not intents[call] and not synthetic and call not in denied_calls:
                    problems.append(f"seq {envelope.seq}: call {call} has a result without an intent before it")
            case e.TurnStart(turn=turn):
                problems += _find_unanswered_calls(order, results, f"turn {turn} at seq {envelope.seq}")
    return problems + (_find_unanswered_calls(order, results, "the end of the log") if is_idle else [])


def _find_unanswered_calls(order: Iterable[CallKey], results: Mapping[CallKey, int], place: str) -> Problems:
    return [f"call {call} has no result before {place}" for call in order if not results[call]]


def check_turns(log: Sequence[Envelope], *, is_idle: bool = True) -> Problems:
    """A turn starts once, answers at most once and ends once, after its calls; a run ends once, with nothing later."""
    problems: Problems = _find_early_ends(log)
    counts: Counter[tuple[str, int]] = Counter()
    running = False
    for envelope in log:
        event = envelope.data
        if isinstance(event, e.TurnStart | e.AssistantMessage | e.TurnEnd):
            counts[event.TYPE, event.turn] += 1
            if counts[event.TYPE, event.turn] > 1:
                problems.append(f"seq {envelope.seq}: a second {event.TYPE} of turn {event.turn}")
            if not counts[e.TurnStart.TYPE, event.turn]:
                problems.append(f"seq {envelope.seq}: {event.TYPE} of turn {event.turn}, which did not start")
            if not running:
                problems.append(f"seq {envelope.seq}: {event.TYPE} outside of a run")
        elif isinstance(event, e.UserMessage):
            running = True
        elif isinstance(event, e.RunEnd):
            if not running:
                problems.append(f"seq {envelope.seq}: a run ended that had ended before")
            running = False
            turns = (turn for kind, turn in [*counts] if kind == e.TurnStart.TYPE and not counts[e.TurnEnd.TYPE, turn])
            problems += [f"seq {envelope.seq}: the run ended before its turn {turn} did" for turn in turns]
    return [*problems, "the last run did not end"] if is_idle and running else problems


def _find_early_ends(log: Sequence[Envelope]) -> Problems:
    """Ends of turns that stand before a result of the turn; in logs of version 1 they stood before all of them."""
    problems: Problems = []
    waited_for: set[CallKey] = set()
    for envelope in log:
        match envelope.data:
            case e.AssistantMessage(tool_requests=requests, usage=usage):
                waited_for = {request.call for request in requests} if usage is not None else set()
            case e.ExecutionComplete(call=call):
                waited_for.discard(call)
            case e.TurnEnd(turn=turn):
                problems += [f"seq {envelope.seq}: turn {turn} ended before its call {call}" for call in waited_for]
    return problems


def check_checks(log: Sequence[Envelope], *, is_idle: bool = True) -> Problems:
    """A check of a completion begins once, ends once, and one ends before the next begins."""
    problems: Problems = []
    began: list[str] = []
    open_check = ""
    for envelope in log:
        match envelope.data:
            case e.CheckStarted(check=check):
                if open_check or check in began:
                    problems.append(f"seq {envelope.seq}: check {check} began, which was not to begin")
                began.append(check)
                open_check = check
            case e.CheckCompleted(check=check):
                if check != open_check:
                    problems.append(f"seq {envelope.seq}: check {check} ended, which was not open")
                open_check = ""
            case e.RunEnd() if open_check:
                problems.append(f"seq {envelope.seq}: the run ended before its check {open_check} did")
    return [*problems, f"check {open_check} has no outcome"] if is_idle and open_check else problems


def check_effects(counter: Path) -> Problems:
    """Each line of a counter file stands for one effect, and no effect happens twice."""
    lines = Counter(counter.read_text().splitlines() if counter.exists() else [])
    return [f"{counter.name}: {line!r} happened {times} times" for line, times in lines.items() if times > 1]


def read_files(root: Path) -> dict[str, FileState]:
    paths = (Path(folder) / name for folder, folders, names in os.walk(root) for name in (*folders, *names))
    return {encode_path(str(path.relative_to(root))): _state_of(path) for path in paths}


def _state_of(path: Path) -> FileState:
    status = path.lstat()
    kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
    if kind == stat.S_IFLNK:
        return FileState("link", target=encode_path(os.readlink(path)))
    if kind == stat.S_IFREG:
        return FileState("file", mode, _digest(path), status.st_size)
    return FileState("directory" if kind == stat.S_IFDIR else "fifo" if kind == stat.S_IFIFO else "other", mode)


def check_files(log: Sequence[Envelope], old_files: Mapping[str, FileState], now: Mapping[str, FileState]) -> Problems:
    """The project is what it was before the chat, with exactly the changes that the log tells (W-01): each path that it
    names is as it says, and no other is different. For logs whose changes stand in it entirely."""
    problems: Problems = []
    expected = dict(old_files)
    for envelope in log:
        if not isinstance(envelope.data, e.FilesChanged | e.Undone | e.Redone):
            continue
        for change in envelope.data.files:
            if change.before != (old_state := expected.get(change.path)):
                states = (
                    f"{_format_state(old_state)} before, and it is said to have been {_format_state(change.before)}"
                )
                problems.append(f"seq {envelope.seq}: {change.path} was {states}")
            if change.after is None:
                expected.pop(change.path, None)
            else:
                expected[change.path] = change.after
    differing = (path for path in sorted(expected.keys() | now.keys()) if expected.get(path) != now.get(path))
    texts = ((path, _format_state(now.get(path)), _format_state(expected.get(path))) for path in differing)
    return problems + [f"{path} is {state}, and by the log it is {recorded}" for path, state, recorded in texts]


def _format_state(state: FileState | None) -> str:
    if state is None:
        return "nothing"
    return f"a {state.kind} ({state.mode:o}) {state.digest[:8] or state.target}".strip()


def check_summary(folded: ChatState, stored: ChatSummary) -> Problems:
    expected = build_summary(folded)
    pairs = ((name, getattr(stored, name), getattr(expected, name)) for name in ChatSummary.__struct_fields__)
    return [f"the stored summary says {name} = {a!r}, the log says {b!r}" for name, a, b in pairs if a != b]


def check_folds(chat: ChatId, log: Sequence[Envelope], stored_body: bytes | None = None) -> Problems:
    """A fold through a snapshot, at any place, is the fold of all; `stored_body` is the snapshot that is stored."""
    full_state = fold_all(ChatState(chat=chat), log)
    problems: Problems = []
    cuts = sorted({round(len(log) * part / 7) for part in range(1, 8)})
    bodies = [snapshot.encode(fold_all(ChatState(chat=chat), log[:length])) for length in cuts]
    for body in [*bodies, *([stored_body] if stored_body is not None else [])]:
        state = snapshot.decode(body)
        if state is None:
            problems.append("a snapshot of this version cannot be read")
        elif fold_all(state, log[state.head :]) != full_state:
            problems.append(f"folding on from a snapshot at seq {state.head} gives another state than folding all")
    return problems


def check_histories(chat: ChatId, log: Sequence[Envelope]) -> Problems:
    """Every provider would take the conversation: as it is at the end of the log, and as it was before each change that
    makes another one of it. Between those it only grows."""
    problems: Problems = []
    state = ChatState(chat=chat)
    ends = [place for place, one in enumerate(log) if isinstance(one.data, e.CompactionComplete | e.SessionRewound)]
    begin = 0
    for end in [*ends, len(log)]:
        state = fold_all(state, log[begin:end])
        begin = end
        history = build_entries(state)
        history_problems = check_history(history) or check_requests(history)
        problems += [f"the conversation up to seq {end}: {problem}" for problem in history_problems]
    return problems


def check_seen(received: Iterable[Envelope | str | bytes], log: Sequence[Envelope]) -> Problems:
    """Check that a client saw exactly the log, reconnections included: each event once, in order, and unchanged (D-04).
    `received`: envelopes, or the JSON lines of the wire; ephemeral events are ignored."""
    envelopes = [one if isinstance(one, Envelope) else wire.from_json(one) for one in received]
    recorded = [envelope for envelope in envelopes if not envelope.ephemeral]
    places = ((place, envelope.seq) for place, envelope in enumerate(recorded, 1))
    problems = [f"place {place} of what the client saw is seq {seq}" for place, seq in places if seq != place]
    by_seq = {envelope.seq: envelope for envelope in log}
    for envelope in recorded:
        if envelope.seq not in by_seq:
            problems.append(f"the client saw seq {envelope.seq} ({envelope.type}), which is not in the log")
        elif by_seq[envelope.seq] != envelope:
            problems.append(f"the client saw another event at seq {envelope.seq} than the log has")
    missed = by_seq.keys() - {envelope.seq for envelope in recorded}
    return [*problems, f"the client never saw {sorted(missed)}"] if missed else problems


class Canary:
    """A directory that nothing may touch: remembers what is in it, and tells what became different."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = self._look()

    def find_problems(self) -> Problems:
        now = self._look()
        names = sorted(self._before.keys() | now.keys())
        return [f"{name} outside the root was changed" for name in names if self._before.get(name) != now.get(name)]

    def _look(self) -> dict[str, tuple[int, str]]:
        contents: dict[str, tuple[int, str]] = {}
        for path in sorted(self.folder.rglob("*")):
            mode = path.lstat().st_mode
            content = os.readlink(path) if path.is_symlink() else _digest(path) if path.is_file() else ""
            contents[str(path.relative_to(self.folder))] = (mode, content)
        return contents


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_processes(marker: str, *, allowed: Iterable[int] = ()) -> Problems:
    """No process is left that carries this marker (`NAME=value`) in its environment. Zombies are gone already."""
    problems: Problems = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) in (os.getpid(), *allowed):
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # the process has ended meanwhile, or belongs to another user
        if marker.encode() in environment:
            problems.append(f"process {folder.name} was left behind: {command.strip()}")
    return problems
