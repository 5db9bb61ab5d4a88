"""The process under which a command runs and which outlives a worker (`session`, `child`, `recorder`, `tree`), and the
worker's side of it (`commands`, `command`). They share a folder and nothing else; `folder` names what lies in it.

The process must be there in an instant, so what it imports is little: no typing, no json, nothing of the rest of
Treadle."""
