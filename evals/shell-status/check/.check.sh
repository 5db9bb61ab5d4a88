[ "$(bash deploy.sh | tail -1)" = deployed ] || exit 1
grep -q building build.log || exit 1
echo 'echo no; exit 3' > steps/build.sh
said=$(bash deploy.sh) && exit 1
case $said in *uploading* | *deployed*) exit 1 ;; esac
echo 'echo building' > steps/build.sh
echo 'exit 4' > steps/upload.sh
said=$(bash deploy.sh) && exit 1
case $said in *deployed*) exit 1 ;; esac
exit 0
