#!/bin/sh
# `make run`: finds the model, says what to type in a second terminal, and becomes the server.
set -eu
program=$1
model=${MODEL:-} port=${PORT:-8080}
tiny=tests/golden/stories260K/model-f32.gguf
ask='{"prompt":"Once upon a time"}'

case $model in
http://* | https://*) model=$(sh config/fetch-model.sh "$model" ${SHA256:+"$SHA256"}) ;;
'')
    rc=0
    model=$(sh config/fetch-model.sh) || rc=$?
    if [ $rc = 3 ]; then
        model=$tiny
        echo "attend: serving the tiny stories260K instead. It writes children's stories and answers nothing." >&2
    elif [ $rc != 0 ]; then
        exit $rc
    fi ;;
esac
case ${model##*/} in
*[Ii]nstruct* | *[Cc]hat*) ask='{"messages":[{"role":"user","content":"What is the capital of France?"}]}' ;;
esac

[ "$port" != 0 ] || port="PORT" # the server says which it got
cat << EOF
attend: serving $model; Ctrl-C stops. In a second terminal:

    curl -N http://127.0.0.1:$port/generate -d '$ask'

EOF
exec "$program" serve "$model" --host 127.0.0.1 --port "${PORT:-8080}"
