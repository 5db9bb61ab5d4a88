# Pretends to build something in many steps.
for step in $(seq 1 4000); do
  if [ "$step" -eq 1742 ]; then
    echo "step $step: error: symbol 'weave' is not defined"
  else
    echo "step $step: compiled unit $((step * 7 % 997)) with 0 warnings and 0 errors"
  fi
done
echo "build failed"
exit 1
