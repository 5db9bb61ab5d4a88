"""Names of files by pattern, and which are sensitive (S-06)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.policy.sensitive_files import (
    DEFAULTS,
    escape_path,
    find,
    is_literal,
    judge,
    judge_new,
    matches_path,
)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        (".env", ".env", True),
        (".env", "a/b/.env", True),
        (".env", "a.env", False),
        (".env.*", ".ENV.Local", True),
        ("*.pem", "a/b.pem", True),
        ("a/*.pem", "a/b/c.pem", False),
        ("a/**", "a/b/c", True),
        ("a/**", "b/a/c", False),
        ("**/a/**", "b/a/c", True),
        ("a/", "a/b", True),
        ("/top", "top", True),
        ("/top", "sub/top", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("x?", "xy", True),
        ("x?", "x/", False),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("[z-a]", "[z-a]", True),
        ("*.{yml,yaml}", "x.yaml", True),
        ("*.{yml", "x.{yml", True),
        ("foo..bar", "foo..bar", True),
        ("\u00e9.txt", "e\u0301.txt", True),
        ("a+b(c)", "a+b(c)", True),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    assert matches_path(pattern, path) is expected


@given(
    st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1).filter(
        lambda s: s not in (".", "..")
    )
)
def test_a_literal_matches_its_own_path(name: str) -> None:
    path = f"folder/{name}"
    assert matches_path(escape_path(path), path)
    assert is_literal(escape_path(path))
    assert not matches_path(escape_path(path), f"{path}x")


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_pattern_breaks_it(pattern: str, path: str) -> None:
    assert matches_path(pattern, path) in (True, False)


@pytest.mark.parametrize(
    "path",
    [".env", "a/.env.production", "id_rsa", "deploy/id_ed25519.pub", "x/server.key", ".aws/credentials", ".npmrc",
     "Cargo.lock", "package-lock.json", "a/yarn.lock", "pnpm-lock.yaml", "go.sum", "uv.lock", "bun.lockb",
     ".github/workflows/ci.yml", "sub/.github/workflows/x.yaml", ".gitlab-ci.yml", "Jenkinsfile",
     ".cargo/config.toml", "sub/.mvn/jvm.config", "gradle/wrapper/gradle-wrapper.properties",
     ".circleci/config.yml",
     ".git/config", ".git/hooks/pre-commit", "vendor/x/.git/HEAD", ".git", ".gitattributes", ".husky/pre-commit",
     ".pre-commit-config.yaml", ".bashrc", "home/.zshrc", ".vscode/tasks.json", ".envrc", "AGENTS.md", "docs/claude.md",
     ".treadle/hooks.toml", ".mcp.json", "infra/prod.tfvars", "secrets.yml",
     "CLAUDE.local.md", "AGENTS.override.md", ".clinerules", ".clinerules/x.md", ".agents/skills/x/SKILL.md",
     ".github/hooks/x.json", ".github/instructions/a.md", ".github/agents/a.md", ".github/skills/a/SKILL.md",
     ".github/prompts/a.prompt.md", ".helix/config.toml", "opencode.json", "opencode.jsonc", ".aider.conf.yml",
     ".pdbrc", ".Rprofile", ".gitlab/agents/x/config.yaml", ".gitlab-ci-extra.yml", ".cursor/rules/x.mdc",
     ".cursorrules", ".windsurf/rules/x.md", ".zed/tasks.json", ".vscode/settings.json", ".vscode/launch.json",
     ".idea/runConfigurations/x.xml", ".mise.toml", "mise.toml", "mise.local.toml", ".mise/config.toml",
     ".config/mise/config.toml", ".config/mise.toml", ".tool-versions", ".yarnrc.yml", ".yarn/releases/yarn-4.cjs",
     ".yarn/plugins/x.cjs", "pip.conf", "lefthook.yml", "lefthook-local.yml", ".lefthook/pre-push/x",
     ".devcontainer/Dockerfile", ".tekton/pipeline.yaml", ".buildkite/pipeline.yml", ".cirrus.yml", "buildspec.yml",
     ".irbrc", ".psqlrc", ".ghci", ".roo/rules/x.md", ".kiro/hooks/x.json", ".junie/guidelines.md",
     ".continue/config.yaml", ".goosehints", ".nvim.lua", ".vim/vimrc", ".dir-locals-2.el", "x.sublime-project",
     ".bazelrc", ".pnpmfile.cjs", "bunfig.toml", "init.gradle.kts", ".lintstagedrc.json", ".huskyrc", "nuget.config",
     "NuGet.Config", ".terraform.lock.hcl", "renovate.json",
     "AGENT.md", ".roomodes", ".kilocode/rules/x.md", ".claude-plugin/plugin.json", ".gitpod.yml", ".replit",
     "rust-toolchain.toml", ".idx/dev.nix", "devfile.yaml", ".mocharc.json", ".rspec", "jupyter_server_config.py",
     ".pnp.cjs"],
)  # fmt: skip
def test_sensitive_by_default(path: str) -> None:
    finding = judge(path, {})
    assert finding is not None
    assert finding.reason


@pytest.mark.parametrize(
    "path",
    ["src/main.py", "README.md", "package.json", "Makefile", ".env.example", ".gitignore", "environment.py", "keys.py",
     "docs/lock.md", "src/monkey.ts", "a/locked.txt", ".github/ISSUE_TEMPLATE/bug.md", "config.env.py", "gitx/config"],
)  # fmt: skip
def test_not_sensitive_by_default(path: str) -> None:
    assert judge(path, {}) is None


def test_the_last_match_wins_and_true_means_safe() -> None:
    own_patterns = {"*": False, "src/**": True, "src/secret.py": False}
    assert judge("a.py", own_patterns) is not None
    assert judge("src/a.py", own_patterns) is None
    assert judge("src/secret.py", own_patterns) is not None
    assert judge("src/.env", own_patterns) is None  # an own pattern stands behind the built-in ones
    assert judge(".env", {".env": True}) is None
    assert set(DEFAULTS.values()) == {True, False}


def test_a_link_is_what_it_points_at(tmp_path: Path) -> None:  # S-06
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "notes.txt").symlink_to(".env")
    (tmp_path / "folder").symlink_to(".")
    (tmp_path / "plain.txt").write_text("")
    findings = [find(str(tmp_path), path, {}) for path in ("notes.txt", "folder/notes.txt", "plain.txt")]
    assert [each and each.path for each in findings] == [".env", ".env", None]


def test_a_file_is_what_links_make_of_it(tmp_path: Path) -> None:  # S-06
    for folder in ("docs", "conf/rules", ".github"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "CLAUDE.md").symlink_to("docs/ai.md")
    (tmp_path / "docs/ai.md").write_text("")
    (tmp_path / ".cursor").symlink_to("conf")
    (tmp_path / ".github/workflows").symlink_to("../ci")
    (tmp_path / "ci").mkdir()
    (tmp_path / "away.md").symlink_to(tmp_path.parent)
    paths = ("docs/ai.md", "conf/rules/x.mdc", "ci/x.yml", "docs/other.md", "confused")
    sensitive = [find(str(tmp_path), path, {}) for path in paths]
    names = ["CLAUDE.md", ".cursor/rules/x.mdc", ".github/workflows/x.yml", None, None]
    assert [each and each.path for each in sensitive] == names


@pytest.mark.parametrize(
    "path", [".pylintrc", ".flake8", ".coveragerc", ".prettierrc", ".rubocop.yml", ".golangci.yml"]
)
def test_new_settings_by_which_a_linter_runs_code(path: str) -> None:  # S-06
    assert judge_new(path, {}) is not None
    assert judge(path, {}) is None
