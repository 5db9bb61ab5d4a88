#!/bin/bash
# Delete the files of a folder that end in .tmp or ~; with -n only print their names.
dry=
if [ "$1" = -n ]; then
  dry=1
  shift
fi
folder=${1:-.}
for file in "$folder"/*.tmp "$folder"/*~; do
  if [ -f "$file" ]; then
    if [ "$dry" ]; then
      echo "$file"
    else
      rm "$file"
    fi
  fi
done
