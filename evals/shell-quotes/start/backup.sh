#!/bin/bash
# Copy all .txt files of one folder into another.
from=$1
to=$2
mkdir -p $to
for file in $(ls $from/*.txt); do
  cp $file $to/
done
