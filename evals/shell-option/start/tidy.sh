#!/bin/bash
# Delete the files of a folder that end in .tmp or ~
folder=${1:-.}
for file in "$folder"/*.tmp "$folder"/*~; do
  if [ -f "$file" ]; then
    rm "$file"
  fi
done
