set -e
mkdir -p ".try/my files" .try/none
echo 1 > ".try/my files/a b.txt"
echo 2 > ".try/my files/c.txt"
echo 3 > ".try/my files/d.md"
bash backup.sh ".try/my files" ".try/the copy"
[ "$(ls ".try/the copy" | tr '\n' '|')" = "a b.txt|c.txt|" ]
[ "$(cat ".try/the copy/a b.txt")" = 1 ]
said=$(bash backup.sh .try/none .try/empty 2>&1)
[ -z "$said" ] && [ -d .try/empty ]
