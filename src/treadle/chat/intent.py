"""Decides if a person's message asks for a change or only for information. A careful heuristic: in doubt the answer is
no, because a model that is told without reason that it did nothing learns not to listen (L-16).

A message asks for changes if one of its sentences is a request with a verb of change: an imperative at its beginning
("Fix the test", "Please add …", "then rename …"), or a polite one ("can you fix …", "I want you to add …", "it should
be renamed"), or a demand on a file ("deploy.sh … must stop at the first step that fails"). In other languages only the
plainest imperatives are known. Questions ("How would I fix this?"), requests for information ("Explain how to add …"),
negations of everything ("Don't change anything") and quoted or fenced text do not count."""

import re


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHANGE = split_words("""
    adapt add adjust annotate append apply bump change clean convert correct create decrease dedupe delete deprecate
    disable document drop edit enable enhance ensure expand expose extend extract factor fix format generate give handle
    implement improve increase inline insert integrate introduce lower make mend merge migrate modernise modernize
    modify move optimise optimize parametrize patch port prepend put raise reduce refactor reformat remove rename
    reorder reorganise reorganize repair replace resolve restore restructure revert rewrite save set simplify speed
    split support swap switch uncomment undo update upgrade wire wrap write
""")
_TELL = split_words("tell explain describe summarise summarize list show say discuss outline propose suggest")
"""Verbs that ask only for words. A sentence that begins with one asks for none of the changes that it mentions."""
_ASKING = split_words("what why how when where who which whose")
_WORDS = (
    r"^give (?:me|us)\b"
    r"|^(?:write|make|create|generate|add|put) .*\b(?:poem|haiku|story|joke|limerick|essay|e?mail|letter|summary"
    r"|explanation|list|table|overview|plan|proposal|suggestions?|review|analysis|comparison|guess|example|answer|sure)\b"
)
"""Requests for text that belongs into the answer, not into a file, unless a file is named."""
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
_DEMAND = r"\b(?:should|must|has to|have to|needs? to) (?:also |now |still )?(?!not\b|be\b|have\b|work\b|do\b)[a-z]{2,}"
_GUESS = r"^(?:i|we|you|it seems)\b"
_PLACE = r"^(?:in|inside|within|under) (?:\S+ ){0,3}?\S*[\w-]\.[a-z]\w{0,4},? "
_OTHER = (
    r"^(?:bitte )?(?:ergänze|ändere|füge|korrigiere|behebe|repariere|benenne|entferne|lösche|ersetze|schreibe?|erstelle"
    r"|implementiere|verschiebe|aktualisiere)\b"
    r"|^(?:ajoute|corrige|modifie|supprime|remplace|renomme|crée|écris|implémente)(?:z|r)?\b"
    r"|^(?:por favor,? )?(?:añade|agrega|corrige|arregla|cambia|modifica|elimina|borra|reemplaza|renombra|crea)\b"
    r"|(?:変え|変更し|追加し|修正し|削除し|直し|作成し|書き換え|置き換え|実装し)て(?:ください|下さい|くれ)"
    r"|(?:请|帮我).{0,20}?(?:添加|修改|修复|删除|替换|重命名|实现|创建|更新|编写)"
)
_OTHER_NEGATION = (
    r"nichts ändern|ändere nichts|ne (?:change|modifie)z? rien|no (?:cambies|modifiques) nada"
    r"|不要(?:修改|更改)|何も変えない"
)
_FILLER = (
    r"^(?:please|kindly|now|then|next|also|and|but|so|ok|okay|first of all|first|second|third|finally|just|hey|hi|hello"
    r"|thanks|great|good|yes|no|well|actually|instead|afterwards|after that|once more|again|simply|quickly|carefully)"
    r"[,:;.!]? +"
)
_NEGATION = (
    r"\b(?:do not|don'?t|never|without|no need to|not to|rather than|instead of) (?:\w+ ){0,2}?"
    r"(?:chang|edit|modif|writ|touch|mak|creat|delet|fix|implement|apply)[a-z]*"
    r"(?=\s*(?:$|[.,;:!\n])| (?:anything|any|something|yet|(?:the )?(?:code|sources?|files?|project|repository))\b)"
)
"""Negations of all changes. An exception such as "do not change the tests" still asks for the rest."""
_HINT = f"{_PASSIVE}|{_DEMAND}|" + _OTHER.replace("^", r"\b")
_SENTENCE = r"(?<=[.!?:;])\s+|\n+|, (?=then |and then |and )|(?: and| then) (?=[a-z]+ )"
_BULLET = r"^\s*(?:[-*•+]|\d+[.)]|\[[ x]\]|#+)\s+"
_WRITTEN_TO = (
    r"(?i)(?<!not )(?<!n't )(?<!never )\b(?:write|save|put|append|store|export)\b"
    r"(?:(?! (?:that|which|for|function|method|script|program|class|tests?|code)\b)(?:[^.;:!?\n]|\.\w)){0,200}?"
    r" (?:to|into) (?:the file )?[`'\"]?((?!\.\.)[\w.-][\w./-]*\.[a-z]\w{0,4})\b"
)
"""Where something is to be written: not what a program shall write that is asked for."""
_FENCE = r"(?sm)```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|^>[^\n]*"
_QUOTED = r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”"
_QUOTING = r"[`~>\"“]"
_WORD = r"[a-z]+"
STANDARD_INPUT = "standard_input"  # the tag around piped text at the end of a message: context, which asks for nothing
_LONGEST = 20_000  # characters of a message that are looked at: the request stands first, pasted text behind it


def is_change_request(message: str) -> bool:
    """True if the message asks for something to be changed; False in doubt."""
    text = _strip_quotes(message)
    if _CHANGE.isdisjoint(re.findall(_WORD, text)) and not re.search(_HINT, text):
        return False  # most messages: no verb of change in any of their sentences
    if re.search(_NEGATION, text) or re.search(_OTHER_NEGATION, text):
        return False
    file = re.search(_FILE, text) is not None
    asks_to_explain = False
    for sentence in _split_sentences(text):
        if re.search(_OTHER, sentence):
            return True
        words = re.findall(_WORD, sentence)
        if not words:
            continue
        asks_to_explain = words[0] in _TELL if words[0] not in _CHANGE else asks_to_explain
        if asks_to_explain:
            continue  # "Explain it and suggest how to fix it": what follows belongs to the telling
        if _is_request(sentence, words) or (file and _is_demand(sentence)):
            return True
    return False


def find_files_to_write(message: str) -> list[str]:
    """The files of the project that the message wants something written to, as it names them."""
    if not is_change_request(message):
        return []
    return [str(file) for file in re.findall(_WRITTEN_TO, re.sub(_FENCE, "\n", _strip_piped(message)))]


def is_only_question(message: str) -> bool:
    """True if the message consists only of questions and requests for information."""
    if is_change_request(message):
        return False
    for sentence in _split_sentences(_strip_quotes(message)):
        words = re.findall(_WORD, sentence)
        if words and (sentence.rstrip().endswith("?") or words[0] in _ASKING or words[0] in _TELL):
            return True
    return False


def _is_request(sentence: str, words: list[str]) -> bool:
    if re.match(_POLITE, sentence):
        sentence = _strip_fillers(re.sub(_POLITE, "", sentence, count=1)).rstrip("? ")
        words = re.findall(_WORD, sentence) or [""]
    if sentence.rstrip().endswith("?"):
        return False
    if re.match(_WORDS, sentence) and not re.search(_FILE, sentence):
        return False
    return words[0] in _CHANGE or re.search(_PASSIVE, sentence) is not None


def _is_demand(sentence: str) -> bool:
    """True if the sentence states how something must be. Only if a file is named: else it may be an opinion."""
    is_question = sentence.rstrip().endswith("?")
    return not is_question and bool(re.search(_DEMAND, sentence)) and not re.match(_GUESS, sentence)


def _strip_quotes(message: str) -> str:
    """Without what is quoted, in lower case: a mention is not a request."""
    text = _strip_piped(message)
    if re.search(_QUOTING, text):
        text = re.sub(_QUOTED, "it", re.sub(_FENCE, "\n", text))
    return text.lower().replace("’", "'")  # noqa: RUF001 - that is the character which people's keyboards make


def _strip_piped(message: str) -> str:
    return message.partition(f"\n<{STANDARD_INPUT}>\n")[0][:_LONGEST]


def _split_sentences(text: str) -> list[str]:
    parts = (_strip_fillers(re.sub(_BULLET, "", part).strip()) for part in re.split(_SENTENCE, text))
    return [re.sub(_PLACE, "", part, count=1) for part in parts]


def _strip_fillers(sentence: str) -> str:
    while (shorter := re.sub(_FILLER, "", sentence, count=1)) != sentence:
        sentence = shorter
    return sentence
