import json
from pathlib import Path

raw = Path("texte/de.json").read_text(encoding="utf-8")
german, english = json.loads(raw), json.loads(Path("texte/en.json").read_text(encoding="utf-8"))
assert set(german) == set(english) and "\\u" not in raw
assert german["greeting"] == "Grüß dich, {name}!" and german["empty"] == "Es gibt keine Nachrichten."
assert "{count}" in german["delete"] and "Nachricht" in german["delete"]
assert german["delete"] != english["delete"] and german["back"] != english["back"] and len(german["back"]) > 5
