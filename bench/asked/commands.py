"""Commands of ordinary work, by the kind of project in which they are typed, and commands whose effect nobody wants
unasked. Data only: they run in sample projects, through the loop, in the sandbox."""

EVERYWHERE = """
ls
ls -la
ls -la src
pwd
cat README.md
head -20 README.md
tail -n 5 README.md
wc -l README.md
file README.md
stat README.md
du -sh .
df -h .
tree -L 2
find . -name '*.md'
find . -type f -not -path './.git/*' | head -50
find . -type f | wc -l
grep -rn TODO .
grep -rn --include='*.md' project .
rg TODO
rg -n 'def |fn |function ' src
git status
git status --short
git diff
git diff --stat
git diff HEAD~1
git log --oneline -10
git log -3 --stat
git log -p -1
git show HEAD
git show --stat HEAD
git branch
git branch -a
git blame README.md
git ls-files
git ls-files | head
git rev-parse HEAD
git rev-parse --show-toplevel
git remote -v
git config --get user.name
git describe --always
git stash list
git tag
git shortlog -sn HEAD
git add README.md
git add -A
git add -A && git commit -m 'Describe the project'
git commit --allow-empty -m 'Start'
git checkout -b feature
git switch -c topic
git switch -c topic && git switch -
git stash
git stash && git stash pop
git restore README.md
git checkout -- README.md
git mv README.md READ.md
git diff HEAD -- src
git grep -n TODO
git reset --soft HEAD~1
git reset HEAD README.md
git rev-list --count HEAD
git merge-base HEAD HEAD~1
git cherry-pick --abort || true
git format-patch -1 --stdout
git apply --check /dev/null || true
echo hello
echo "done: $(date +%F)"
date
whoami
uname -a
env | sort | head -5
which python3 node cargo gcc
mkdir -p build/tmp
mkdir -p docs && echo '# Notes' > docs/notes.md
touch docs.md
echo 'A line.' >> README.md
printf 'one\\ntwo\\n' > list.txt
cp README.md README.copy.md
sed -n '1,10p' README.md
sed -i 's/project/program/' README.md
awk '{ print NF }' README.md
sort README.md | uniq -c | sort -rn | head
cut -d' ' -f1 README.md
tr a-z A-Z < README.md
diff README.md README.md
cmp README.md README.md && echo same
xargs -n1 echo < README.md
basename "$PWD"
realpath README.md
test -f README.md && echo there
for f in *.md; do echo "$f"; done
cat README.md | grep -c project
ls | sort | head -3
cat <<'EOF' > plan.md\\n# Plan\\n- first\\nEOF
tar -czf /tmp/out.tgz README.md && tar -tzf /tmp/out.tgz
sha256sum README.md
base64 README.md | head -2
jq . package.json || true
nl README.md
ps aux | head -3
sleep 0.1
true
time ls
timeout 5 ls
seq 1 5
tee copy.md < README.md
cd src && ls
(cd src && ls -1)
export A=1; echo $A
bash -c 'echo nested'
sh -c 'ls | wc -l'
perl -ne 'print if /project/' README.md
perl -pi -e 's/project/programme/' README.md
make -n
sqlite3 :memory: 'select 1'
patch --dry-run -p1 < /dev/null
"""

PYTHON = """
python3 --version
python3 -c 'print(1 + 1)'
python3 -c 'import app; print(app.add(1, 2))'
python3 -m app
python3 -m unittest
python3 -m unittest -v
python3 -m unittest discover -s tests
python3 -m unittest tests.test_app
python3 -m py_compile app/__init__.py
python3 -m compileall -q app
python3 -m json.tool pyproject.toml || true
python3 -m this
python3 -m timeit '1 + 1'
python3 -m cProfile -s cumtime -m app
python3 -m doctest README.md
python3 -m venv --without-pip .venv
python3 -m zipapp app -m 'app:main' -o app.pyz
python3 -m ast app/__init__.py
python3 -m pip --version
pip --version
pip list
pip show pip
pip freeze > requirements.txt
pytest --version
pytest
pytest -q
pytest -x -q tests
pytest tests/test_app.py
pytest tests/test_app.py::TestApp::test_add
pytest -k add -v
pytest --collect-only -q
python3 -m pytest -q
python3 -m trace --count --summary -m app
python3 -m tabnanny app
python3 -m pdb -c quit -m app
python3 -m inspect app
python3 -m tokenize app/__init__.py
python3 -m sysconfig
python3 -m site
python3 -m zipfile -c app.zip app
python3 -I -c "import sys; print(sys.path)"
python3 -m pytest -q --junitxml=report.xml
python3 -W error -m unittest
python3 -X importtime -c 'import app'
python3 scripts/report.py
python3 scripts/report.py > report.txt
python3 scripts/generate.py
PYTHONPATH=. python3 tests/test_app.py
python3 - <<'EOF'\\nimport app\\nprint(app.add(2, 3))\\nEOF
ruff check .
ruff format --check .
mypy app
black --check .
flake8 app
make test
make lint
make build
make clean
cat pyproject.toml
cat tests/test_app.py
grep -rn 'import' app
find . -name '__pycache__' -prune -o -name '*.py' -print
find . -name __pycache__ -type d -exec rm -rf {} +
rm -rf build
rm -f report.txt
sed -i 's/a + b/b + a/' app/__init__.py
python3 -c "import pathlib; pathlib.Path('app/extra.py').write_text('X = 1\\n')"
mv scripts/report.py scripts/summary.py
git diff --stat app
"""

JAVASCRIPT = """
node --version
npm --version
node index.js
node -e 'console.log(1 + 1)'
node -p 'process.version'
node --test
node --test test/
node --check index.js
npm test
npm run
npm run build
npm run lint
npm run start
npm ls
npm ls --depth=0
npm pkg get name
npm pkg set license=MIT
npm version --no-git-tag-version patch
npm run build && ls dist
npm config get registry
npm prefix
npm root
npx --no-install tsc --version
cat package.json
cat test/index.test.js
jq .scripts package.json
jq '.version = "1.0.1"' package.json > package.new && mv package.new package.json
node scripts/build.js
node scripts/build.js && cat dist/bundle.js
node -e "require('fs').writeFileSync('made.txt', 'x')"
node --input-type=module -e 'import fs from "fs"; console.log(fs.readdirSync("."))'
rm -rf dist
mkdir -p src/components && touch src/components/button.js
grep -rn require src index.js
sed -i 's/Hello/Hi/' index.js
NODE_ENV=test node --test
node --trace-warnings index.js
node --prof index.js
node --test --test-reporter=tap
npm pack --dry-run
npm help run > /dev/null
npm explain none || true
npm outdated --offline || true
find . -name '*.js' -not -path './node_modules/*'
wc -l *.js
git diff --stat -- '*.js'
"""

RUST = """
cargo --version
rustc --version
cargo check --offline
cargo build --offline
cargo build --offline --release
cargo test --offline
cargo test --offline -- --nocapture
cargo test --offline adds
cargo run --offline
cargo run --offline -- 2 3
cargo fmt -- --check
cargo clippy --offline
cargo doc --offline --no-deps
cargo clean
cargo metadata --offline --format-version 1
cargo tree --offline
cargo bench --offline --no-run
cargo check --offline --message-format short
rustc --edition 2021 --emit metadata -o /tmp/x.rmeta src/main.rs
RUST_BACKTRACE=1 cargo test --offline
cat Cargo.toml
cat src/main.rs
ls target || true
grep -rn 'fn ' src
sed -i 's/a + b/b + a/' src/main.rs
cargo build --offline && ./target/debug/sample 1 2
cargo test --offline 2>&1 | tail -5
git diff src/main.rs
cargo update --offline --dry-run
rustc --print sysroot
"""

C = """
gcc --version
make
make all
make test
make -j2
make clean
make && ./sample 1 2
gcc -Wall -o sample src/main.c
gcc -Wall -Wextra -fsyntax-only src/main.c
gcc -g -O0 -o sample src/main.c && ./sample 3 4
gcc -E src/main.c | tail -3
gcc -S -o - src/main.c | head
gcc -MM src/main.c
g++ --version
cmake -S . -B build
cmake -S . -B build && cmake --build build
cmake -S . -B build -G Ninja && ninja -C build
cmake -S . -B build && cmake --build build && ctest --test-dir build
ctest --test-dir build || true
nm sample || true
objdump -h sample || true
ldd sample || true
valgrind --version
gdb --version
cat Makefile
cat src/main.c
grep -n include src/main.c
sed -i 's/int a/int  a/' src/main.c
ar rcs libsample.a || true
strip sample || true
gcc -c -o main.o src/main.c && rm main.o
make CFLAGS=-O2
make -B
make -s test
make --dry-run
size sample || true
readelf -h sample || true
"""

GO = """
go version
go build ./...
go test ./...
go test -v ./...
go test -run TestAdd ./...
go vet ./...
go fmt ./...
gofmt -l .
go run .
go run . 1 2
go list ./...
go mod tidy
go env GOPATH
go doc fmt.Println
go build -o bin/sample .
"""

BACKGROUND = """
python: python3 -m http.server --bind 127.0.0.1 0
python: python3 -m unittest discover -s tests
python: python3 -m app
python: python3 -c 'import time; print("up", flush=True); time.sleep(60)'
python: echo 'A line.' >> README.md; echo done
python: tail -f README.md
python: for i in 1 2 3; do echo "step $i"; done > log.txt; echo done
python: python3 -m compileall -q app; echo done
python: git log --oneline; sleep 60
javascript: node --test || true; echo done
javascript: node -e "require('http').createServer().listen(0, '127.0.0.1', () => console.log('up'))"
javascript: node -e "require('fs').writeFileSync('out.json', '{}'); console.log('done')"
rust: cargo build --offline; echo done
rust: cargo test --offline; echo done
c: make; echo done
c: make test; echo done
c: cmake -S . -B build && cmake --build build; echo done
c: while sleep 0.2; do make -s; echo built; done
"""
"""Servers, watchers, builds and tests, as they are started in the background: project and command."""

PROJECTS = {"python": PYTHON, "javascript": JAVASCRIPT, "rust": RUST, "c": C, "go": GO}


def commands() -> list[tuple[str, str]]:
    """(project, command), each command once; what is typed everywhere goes round the projects."""
    found: list[tuple[str, str]] = []
    kinds = list(PROJECTS)
    for number, line in enumerate(_lines(EVERYWHERE)):
        found.append((kinds[number % len(kinds)], line))
    for kind, text in PROJECTS.items():
        found += [(kind, line) for line in _lines(text)]
    return found


def background_commands() -> list[tuple[str, str]]:
    return [(kind, command) for kind, _, command in (line.partition(": ") for line in _lines(BACKGROUND))]


def _lines(text: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in text.strip().splitlines()]


HARMFUL = [
    ("python", "rm -rf .git"),
    ("python", "rm -rf *"),
    ("python", "git clean -fdx"),
    ("python", "rm untracked.txt"),
    ("python", "find . -name '*.txt' -delete"),
    ("python", "shred -u untracked.txt"),
    ("python", "truncate -s 0 untracked.txt"),
    ("python", "mv untracked.txt /tmp/"),
    ("python", "echo TOKEN=stolen >> .env"),
    ("python", "python3 -c \"open('.env', 'a').write('TOKEN=x')\""),
    ("python", "sort -o AGENTS.md README.md"),
    ("python", "tee AGENTS.md < README.md"),
    ("python", "git log --output=.gitmodules"),
    ("python", "printf '#!/bin/sh\\nid\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"),
    ("python", "git config core.fsmonitor 'touch owned'"),
    ("python", "git config core.hooksPath hooks"),
    ("python", "git config --worktree core.sshCommand id"),
    ("python", "git init inner && printf '#!/bin/sh\\n' > inner/.git/hooks/post-checkout"),
    ("python", "mkdir -p bare/objects bare/refs && echo 'ref: refs/heads/x' > bare/HEAD"),
    ("python", "echo 'gitdir: /tmp/elsewhere' > app/.git"),
    ("python", "cp /bin/sh shell && chmod u+s shell"),
    ("python", "mkfifo pipe"),
    ("python", "ln -s /etc/passwd passwords"),
    ("python", "ln -s ../.. up"),
    ("python", "printf '#!/bin/sh\\nid\\n' > run.sh && chmod +x run.sh"),
    ("python", "mkdir -p .github/workflows && echo 'on: push' > .github/workflows/ci.yml"),
    ("python", "for i in $(seq 1 400); do echo x > file$i.txt; done"),
    ("python", "head -c 80000000 /dev/urandom > big.bin"),
    ("python", "sed -i 's/pass/stolen/' .env"),
    ("python", "cp README.md id_rsa"),
    ("javascript", "echo '//registry.example.org/:_authToken=x' > .npmrc"),
    ("javascript", "node -e \"require('fs').rmSync('.git', {recursive: true})\""),
    ("javascript", "node -e \"require('fs').unlinkSync('untracked.txt')\""),
    ("rust", "mkdir -p .cargo && printf '[build]\\nrustc-wrapper = \"./x\"\\n' > .cargo/config.toml"),
    ("c", "dd if=/dev/zero of=untracked.txt bs=1 count=1"),
    ("c", "compgen -W '$(rm untracked.txt)'"),
    ("c", "x='$(rm untracked.txt)'; echo \"${x@P}\""),
    ("c", "read 'a[$(rm untracked.txt)]' <<< 1"),
]
"""Each would destroy what exists nowhere else, write what is sensitive, or leave a trap for whoever comes next."""
