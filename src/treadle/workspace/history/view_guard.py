"""What a command may not bring into a project by its view, although nothing lay there to be protected (S-03): hooks and
settings of git, which would run code later and outside, and Treadle's own folder. Such changes are left out of an
effect, and said; one that would lead such a path elsewhere is a conflict."""

from msgspec.structs import replace

from treadle.ports.sandbox import IN_A_REPOSITORY, OWN_FOLDER
from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileConflict, Uncaptured, decode_path, encode_path
from treadle.workspace.paths.root import Root

LEFT_OUT = "it is protected: a command may not make it, so it was left out"
IN_THE_WAY = "a command may put nothing but a folder here, because protected paths lie below it"


def withhold(root: Root, effect: Effect) -> Effect:
    """The effect without what is protected."""
    made = {decode_path(file.path) for file in effect.files if file.before is None}
    kept, left, conflicts = [], dict[str, None](), []
    for file in effect.files:
        path = decode_path(file.path)
        if guarded := _guarded(root, path, made):
            left[guarded] = None
        elif path == ".git" and file.after is not None and file.after.kind != "directory":
            conflicts.append(FileConflict(file.path, IN_THE_WAY))
        else:
            kept.append(file)
    if not left and not conflicts:
        return effect
    said = tuple(Uncaptured(encode_path(path), LEFT_OUT) for path in left)
    return replace(
        effect,
        files=tuple(kept),
        conflicts=(*effect.conflicts, *conflicts),
        uncaptured=(*effect.uncaptured, *said),
    )


def _guarded(root: Root, path: str, made: set[str]) -> str:
    """The protected path that this one is or lies below; empty if there is none."""
    parts = path.split("/")
    if parts[0] == OWN_FOLDER:
        return OWN_FOLDER
    if parts[0] != ".git" or len(parts) < 2:
        return ""
    if parts[1] in IN_A_REPOSITORY:
        return "/".join(parts[:2])
    if parts[1] != "modules":
        return ""
    for depth in range(3, len(parts)):  # the repository of a submodule, whose name may have slashes
        if parts[depth] in IN_A_REPOSITORY:
            repository = "/".join(parts[:depth])
            if f"{repository}/HEAD" not in made and root.inspect(f"{repository}/HEAD") is not None:
                return "/".join(parts[: depth + 1])
    return ""
