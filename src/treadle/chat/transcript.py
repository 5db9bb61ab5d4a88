"""The conversation as the next request carries it: compacted, masked and repaired. The log is never rewritten;
differences between log and request are decided here, deterministically, so that a request's prefix stays the same from
turn to turn (L-19 to L-21)."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from treadle.chat.history import History, estimate_tokens, weigh
from treadle.chat.state import ChatState, Compaction
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolResult, UserEntry

KEEP_USER_TOKENS = 20_000
KEEP_RECENT_TOKENS = 14_000  # in the middle of the 8 to 20 thousand tokens that stay as they are
COMPACT_AT = 0.85
HEADROOM_TOKENS = 20_000
MASK_OVER_CHARS = 2_000
MAX_FAILURES = 3
LOST = "The result of this call was lost; it is not known whether it took effect."
SUMMARY_INTRO = "The conversation so far was shortened. What happened before this point, in a summary:\n\n"


def rebuild(history: History[Entry], compaction: Compaction) -> History[Entry]:
    """The conversation behind a compaction. Made once when the compaction is folded, so that its entries stay the
    same objects, and their bytes the same bytes, from turn to turn."""
    opening: list[Entry] = []
    if compaction.upto:
        opening = _select_kept_entries(history.take_first(compaction.upto), compaction.kept_seqs)
        opening.append(UserEntry(SUMMARY_INTRO + compaction.summary, source="summary"))
    recent_entries = history.slice(compaction.upto)
    border = max(0, compaction.masked - compaction.upto)
    return repair([*opening, *(mask(entry) for entry in recent_entries[:border]), *recent_entries[border:]])


def _select_kept_entries(head: History[Entry], seqs: Sequence[int]) -> list[Entry]:
    """The messages that stay verbatim: the newest, so that a long chat is not searched to its beginning."""
    remaining_seqs, messages = set(seqs), list[Entry]()
    for entry in reversed(head):
        if not remaining_seqs:
            break
        if isinstance(entry, UserEntry) and entry.seq in remaining_seqs:
            remaining_seqs.remove(entry.seq)
            messages.append(entry)
    return messages[::-1]


def build_entries(state: ChatState) -> list[Entry]:
    transcript_entries = state.transcript.slice(0)
    if transcript_entries and isinstance(last := transcript_entries[-1], AssistantEntry) and last.calls:
        transcript_entries.append(_match_results(last, None))
    return transcript_entries


def mask(entry: Entry) -> Entry:
    if not isinstance(entry, ResultsEntry) or all(len(r.text) <= MASK_OVER_CHARS for r in entry.results):
        return entry
    results = list(entry.results)
    for place, result in enumerate(results):
        if len(result.text) > MASK_OVER_CHARS:
            note = f"[{len(result.text) - 400} characters of this old result are left out]"
            results[place] = replace(result, text=f"{result.text[:400]}\n{note}")
    return replace(entry, results=tuple(results))


def attach(transcript: History[Entry], entry: Entry) -> History[Entry]:
    """The transcript with one more entry, repaired as it grows: each call has exactly one result, right after it and
    in order; answers without a word and results without a call are left out (L-20). Costs what is new."""
    last = transcript.last
    calling_entry = last if isinstance(last, AssistantEntry) and last.calls else None
    if isinstance(entry, ResultsEntry):
        return transcript if calling_entry is None else transcript.append(_match_results(calling_entry, entry))
    if calling_entry is not None:
        transcript = transcript.append(_match_results(calling_entry, None))
    if isinstance(entry, AssistantEntry) and not (entry.text or entry.calls):
        return transcript
    return transcript.append(entry)


def repair(history: Iterable[Entry]) -> History[Entry]:
    transcript: History[Entry] = History()
    for entry in history:
        transcript = attach(transcript, entry)
    return transcript


def _match_results(calling_entry: AssistantEntry, results_entry: ResultsEntry | None) -> ResultsEntry:
    if results_entry is not None and [r.call for r in results_entry.results] == [c.call for c in calling_entry.calls]:
        return results_entry
    results_by_call = {result.call: result for result in results_entry.results} if results_entry is not None else {}
    results = tuple(
        results_by_call.get(call.call) or ToolResult(call.call, LOST, False) for call in calling_entry.calls
    )
    return ResultsEntry(calling_entry.turn, results)


def estimate(state: ChatState, overhead_chars: int) -> int:
    """Tokens of the next request. `overhead_chars`: system text and tool schemas, unknown to the state."""
    if state.context_tokens:
        return state.context_tokens + estimate_tokens(state.context_chars)
    return estimate_tokens(state.context_chars + overhead_chars)


def compute_threshold(window: int, max_output: int) -> int:
    """Where compaction begins: min(85 % of the window, window - output - 20k), never below half of it."""
    return max(min(int(COMPACT_AT * window), window - max_output - HEADROOM_TOKENS), window // 2)


def find_recent_start(history: Sequence[Entry], budget_tokens: int = KEEP_RECENT_TOKENS) -> int:
    """The index from which the newest entries fit the budget, moved so that no result is cut from its call."""
    total, start = 0, len(history)
    while start > 0 and total + estimate_tokens(weigh(history[start - 1])) <= budget_tokens:
        start -= 1
        total += estimate_tokens(weigh(history[start]))
    while start < len(history) and isinstance(history[start], ResultsEntry):
        start += 1
    return start


def select_kept_messages(history: Iterable[Entry], budget_tokens: int = KEEP_USER_TOKENS) -> tuple[int, ...]:
    kept_seqs, remaining_tokens = list[int](), budget_tokens
    for entry in reversed(list(history)):
        if isinstance(entry, UserEntry) and entry.source == "person":
            remaining_tokens -= estimate_tokens(weigh(entry))
            if remaining_tokens < 0:
                break
            kept_seqs.append(entry.seq)
    return tuple(kept_seqs[::-1])
