#!/bin/bash
set -e -o pipefail
bash steps/build.sh | tee build.log
bash steps/upload.sh
echo deployed
