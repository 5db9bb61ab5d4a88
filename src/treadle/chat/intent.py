"""What a person's message wants: something changed, or only something known. A heuristic, and a careful one: where it
is not sure it says no, because a model that is told without reason that it did nothing learns not to listen (L-16).

A message asks for changes if one of its sentences is a request with a verb of change: an imperative at its beginning
("Fix the test", "Please add …", "then rename …"), or a polite one ("can you fix …", "I want you to add …", "it should
be renamed"). Questions ("How would I fix this?"), wishes to be told ("Explain how to add …"), negations ("Don't change
anything") and quoted or fenced text do not count.
"""

import re


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHANGE = words_of(
    """
    adapt add adjust annotate append apply bump change clean correct create dedupe delete deprecate disable document
    drop edit enable enhance expand expose extend extract factor fix format generate handle implement improve inline
    insert integrate introduce make mend merge migrate modernise modernize modify move optimise optimize parametrize
    patch port prepend put refactor reformat remove rename reorder reorganise reorganize repair replace resolve
    restore restructure revert rewrite save set simplify speed split support swap switch uncomment undo update
    upgrade wire wrap write
    """
)
_TELL = words_of("tell explain describe summarise summarize list show say discuss outline propose suggest")
"""What only wants words. A sentence that begins so asks for none of the changes that it mentions."""
_ASKING = words_of("what why how when where who which whose")
_WORDS = (
    r"^(?:write|make|create|generate|add|put) .*\b(?:poem|haiku|story|joke|limerick|essay|e?mail|letter|summary"
    r"|explanation|list|table|overview|plan|proposal|suggestions?|review|analysis|comparison|guess|example|answer|sure)\b"
)
"""What is written into the answer, not into a file, unless one is named."""
_FILE = r"[\w-]\.[a-z]\w{0,4}\b|/|\b(?:file|folder|directory|readme|changelog|docs?)\b"
_POLITE = (
    r"^(?:(?:can|could|would|will) (?:you|we)(?: please| kindly)?|(?:i|we)(?: would|'d)? (?:want|need|like)(?: you)? to"
    r"|(?:i|we) (?:want|need) you to|you (?:should|must|need to|have to)|let'?s|help me(?: to)?|try to|go ahead and"
    r"|feel free to|be sure to|make sure (?:to|that you)|your (?:task|job) is to|the task is to|i'd like you to"
    r"|i would like you to) "
)
_PASSIVE = (
    r"\b(?:should|must|needs? to|has to|have to|ought to) (?:also |now )?be "
    r"(?:added|changed|created|deleted|fixed|implemented|moved|removed|renamed|replaced|rewritten|split|updated)\b"
)
_FILLER = (
    r"^(?:please|kindly|now|then|next|also|and|but|so|ok|okay|first of all|first|second|third|finally|just|hey|hi|hello"
    r"|thanks|great|good|yes|no|well|actually|instead|afterwards|after that|once more|again|simply|quickly|carefully)"
    r"[,:;.!]? +"
)
_NEGATION = (
    r"\b(?:do not|don'?t|never|without|no need to|not to|rather than|instead of) (?:\w+ ){0,2}?"
    r"(?:chang|edit|modif|writ|touch|mak|creat|delet|fix|implement|apply)"
)
_SENTENCE = r"(?<=[.!?:;])\s+|\n+|, (?=then |and then |and )|(?: and| then) (?=[a-z]+ )"
_BULLET = r"^\s*(?:[-*•+]|\d+[.)]|\[[ x]\]|#+)\s+"
_FENCE = r"(?sm)```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|^>[^\n]*"
_QUOTED = r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”"
_WORD = r"[a-z]+"
_LONGEST = 20_000
"""Characters of a message that are looked at: the request stands at its beginning, what was pasted behind it."""


def asks_for_changes(message: str) -> bool:
    """Whether the message, read carefully, asks for something to be changed."""
    text = _plain(message)
    if _CHANGE.isdisjoint(re.findall(_WORD, text)) and not re.search(_PASSIVE, text):
        return False  # most messages: no verb of change in any of their sentences
    if re.search(_NEGATION, text):
        return False
    told = False
    for sentence in _sentences(text):
        words = re.findall(_WORD, sentence)
        if not words:
            continue
        told = words[0] in _TELL if words[0] not in _CHANGE else told
        if told:
            continue  # "Explain it and suggest how to fix it": what follows belongs to the telling
        if _requests(sentence, words):
            return True
    return False


def only_asks(message: str) -> bool:
    """Whether the message is nothing but a question, or a wish to be told something."""
    sentences = [sentence for sentence in _sentences(_plain(message)) if re.search(_WORD, sentence)]
    if not sentences or asks_for_changes(message):
        return False
    return any(_questions(sentence) for sentence in sentences)


def _requests(sentence: str, words: list[str]) -> bool:
    if re.match(_POLITE, sentence):
        sentence = _unfilled(re.sub(_POLITE, "", sentence, count=1)).rstrip("? ")
        words = re.findall(_WORD, sentence) or [""]
    if sentence.rstrip().endswith("?"):
        return False
    if re.match(_WORDS, sentence) and not re.search(_FILE, sentence):
        return False
    return words[0] in _CHANGE or re.search(_PASSIVE, sentence) is not None


def _questions(sentence: str) -> bool:
    words = re.findall(_WORD, sentence)
    return sentence.rstrip().endswith("?") or words[0] in _ASKING or words[0] in _TELL


def _plain(message: str) -> str:
    """Without what is quoted, in lower case: a mention is not a request."""
    text = re.sub(_QUOTED, "it", re.sub(_FENCE, "\n", message[:_LONGEST]))
    return text.lower().replace("’", "'")  # noqa: RUF001 - that is the character which people's keyboards make


def _sentences(text: str) -> list[str]:
    return [_unfilled(re.sub(_BULLET, "", part).strip()) for part in re.split(_SENTENCE, text)]


def _unfilled(sentence: str) -> str:
    while (shorter := re.sub(_FILLER, "", sentence, count=1)) != sentence:
        sentence = shorter
    return sentence
