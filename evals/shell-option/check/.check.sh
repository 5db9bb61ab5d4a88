set -e
mkdir -p .try
touch .try/a.tmp .try/b~ .try/keep.txt
[ "$(bash tidy.sh -n .try | sort | xargs -n1 basename | tr '\n' ' ')" = "a.tmp b~ " ]
[ -f .try/a.tmp ] && [ -f .try/b~ ]
[ -z "$(bash tidy.sh .try)" ]
[ "$(ls .try)" = keep.txt ]
