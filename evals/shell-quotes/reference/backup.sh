#!/bin/bash
# Copy all .txt files of one folder into another.
from=$1
to=$2
mkdir -p "$to"
for file in "$from"/*.txt; do
  if [ -e "$file" ]; then
    cp "$file" "$to"/
  fi
done
