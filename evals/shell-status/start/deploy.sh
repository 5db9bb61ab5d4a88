#!/bin/bash
bash steps/build.sh | tee build.log
bash steps/upload.sh
echo deployed
