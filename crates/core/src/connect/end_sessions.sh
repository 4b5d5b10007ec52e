# Run by /bin/sh -c, of whatever kind; see script.rs for what it does and may not do.
mark="@MARK@=$1" age=$2
blank=$IFS newline='
'
has() { case " $1 " in *" $2 "*) return 0;; esac; return 1; }
# The fields after the name, which may hold anything, newlines too.
fields() {
  set -- ${1##*) }
  state=$1 parent=$2 session=$4 exits=$(($7 & 4)) started=${20}
  # Its first thread is over, others go on.
  [ "$state" = Z ] && [ "${18}" -gt 1 ] && state=S
  return 0
}
last() {
  last=
  while IFS= read -r line || [ "$line" ]; do last=$line; done < "$1"
} 2>/dev/null
# Of one process, where few are looked at.
stat() { last "/proc/$1/stat"; [ "$last" ] && fields "$last"; }
carries() {
  if [ "$fast" ]; then eval "[ \"\$carrier_$1\" ]"; return; fi
  [ "$started" -ge "$since" ] || return 1
  while IFS= read -r line || [ "$line" ]; do
    case $line in *"$mark"*) return 0;; esac
  done < "/proc/$1/environ"
  return 1
} 2>/dev/null
# For every process a line that names its file, and the last line of that, as tail writes it. The
# shell reads a letter at a time.
stats() {
  set +f
  if [ "$fast" ]; then tail -n 1 /proc/[0-9]*/stat; return; fi
  for entry in /proc/[0-9]*/stat; do
    last "$entry"
    printf '==> %s <==\n%s\n' "$entry" "$last"
  done
} 2>/dev/null
fast=1
printf 'x\0' | grep -qzx x && case $(stats) in "==> /proc/1/stat <=="*) ;; *) false;; esac || fast=
flags() {
  flags= mount=
  while read -r name value; do
    case $name in flags:) flags=$value;; mnt_id:) mount=$value;; esac
  done < "/proc/$1/fdinfo/$2"
} 2>/dev/null
# What was opened by its name has this flag, and a pipe that a session begins with has not.
{ flags $$ 3; } 3</dev/null
by_name=${flags:-0}
# The pipes and terminals of a process.
ends() {
  ends=
  for open in "/proc/$1/fd/"*; do
    if [ -p "$open" ] || { [ -c "$open" ] && ! [ "$open" -ef /dev/null ]; }; then
      ends="$ends $open"
    fi
  done
}
same() {
  for other in $2; do [ "$1" -ef "$other" ] && return 0; done
  return 1
}
# A terminal that was hung up has no name any more, but it is of the terminals' file system.
terminals=none
while read -r id parent device root point rest; do
  [ "$point" = /dev/pts ] && terminals=$id
done < /proc/self/mountinfo 2>/dev/null
terminal() {
  [ "$mount" = "$terminals" ] && ! same "$1" "/dev/ptmx /dev/pts/ptmx" || same "$1" "/dev/pts/[0-9]*"
}
stream() {
  open=${1#/proc/}
  flags "${open%%/*}" "${open##*/}"
  if [ -c "$1" ]; then
    terminal "$1"
  else
    [ "$flags" ] && [ $((flags & by_name)) = 0 ]
  fi && ! same "$1" "$taken"
}
add() {
  eval "[ \"\$grants_$1\" ]" && return
  eval "grants_$1=1"
  found="$found $1" queue="$queue $1"
}
spread() {
  while [ "$queue" ]; do
    batch=$queue queue=
    for pid in $batch; do
      eval "kin=\$children_$pid session=\$session_$pid"
      has "$safe" "$session" || eval "kin=\"\$kin \$members_$session\" members_$session="
      for one in $kin; do add "$one"; done
    done
  done
}
# Whether it began since then, in no session of others.
late() {
  eval "started=\$started_$1 session=\$session_$1 parent=\$parent_$1"
  ! eval "[ \"\$grants_$1\" ]" && [ "$started" -ge "$2" ] && ! has "$safe" "$session"
}
# Writes the processes of the grant, and after a slash those that may be of it.
look() {
  table= carriers= theirs=1 taken= streams= found= queue= doubtful=
  if [ "$fast" ]; then
    for entry in $(cd /proc && grep -lzx "$mark" [0-9]*/environ 2>/dev/null); do
      eval "carrier_${entry%%/*}=1"
    done
  fi
  set -f
  IFS=$newline
  set -- $(stats)
  set +f
  IFS=$blank
  for line; do
    case $line in "==> "*" <==") pid=${line#*/proc/} pid=${pid%%/*}; continue;; esac
    has "$own" "$pid" && continue
    fields "$line"
    has "Z X x" "$state" && continue
    if carries "$pid"; then
      carriers="$carriers $pid"
    elif [ "$parent" = 0 ]; then
      theirs="$theirs $pid" safe="$safe $session"
      continue
    fi
    table="$table $pid"
    eval "parent_$pid=$parent session_$pid=$session started_$pid=$started
      children_$parent=\"\$children_$parent $pid\" members_$session=\"\$members_$session $pid\""
  done
  for pid in $theirs; do ends "$pid"; taken="$taken $ends"; done
  for pid in $carriers; do add "$pid"; done
  spread
  for pid in $carriers; do
    eval "parent=\$parent_$pid"
    eval "[ \"\$grants_$parent\" ]" && continue
    ends "$pid"
    for end in $ends; do
      same "$end" "$streams" || { stream "$end" && streams="$streams $end"; }
    done
  done
  [ "$streams" ] && for pid in $table; do
    late "$pid" "$since" || continue
    ends "$pid"
    for end in $ends; do
      same "$end" "$streams" && add "$pid" && break
    done
  done
  spread
  [ "$found" ] || for pid in $table; do
    late "$pid" "$granted" && has "$own" "$parent" || continue
    if true < "/proc/$pid/environ"; then
      ends "$pid"
      for end in $ends; do
        stream "$end" && doubtful="$doubtful $pid" && break
      done
    elif stat "$pid" && [ "$state" != Z ] && [ "$exits" = 0 ]; then
      doubtful="$doubtful $pid"
    fi
  done 2>/dev/null
  echo "$found / $doubtful"
}
own=1 at=$$
stat 1
safe="0 $session"
stat $$
# Linux counts a hundred in a second here, whatever its clock does. A busy node runs this long after it
# was asked to: who shares a stream with the grant may have begun earlier than it seems, and only what
# nobody knows has to be of its time.
since=$((started - (age + 60) * 100)) granted=$((started - (age + 5) * 100))
while [ "$at" -gt 1 ] && stat "$at"; do
  safe="$safe $session" own="$own $at" at=$parent
done
# Seconds since the start, of the node.
up() { read -r now rest < /proc/uptime && now=${now%.*}; } 2>/dev/null
# Waits until these are gone, and counts who is not. What was killed takes a moment, more of it where the
# node is busy: there a thousand looks are over before it had a turn. A shell that has no sleep of its own
# passes the time by starting nothing.
gone() {
  while :; do
    left=0 looks=$((looks + 1))
    for pid; do
      # A zombie is over, and so is what is being taken apart.
      stat "$pid" && ! has "Z X x" "$state" && left=$((left + 1))
    done
    [ $left -gt 0 ] && { [ $looks -lt 1000 ] || [ $now -lt $until ]; } || break
    (:)
    up
  done
}
ended=0 round=0 killed= now=0 looks=0 until=
while [ $round -lt 8 ]; do
  # Who waits for the answer hears that it goes on. Nobody may be there any more.
  printf '. ' 2>/dev/null
  round=$((round + 1)) seen=$(look)
  marked=${seen%/*} left=0
  for pid in ${seen#*/}; do left=$((left + 1)); done
  set -- $marked
  [ $# -gt 0 ] || break
  # First nobody runs on, so that nobody starts anything behind our back.
  kill -STOP "$@" 2>/dev/null
  [ $round = 1 ] && continue
  for pid; do
    kill -KILL "$pid" 2>/dev/null || continue
    has "$killed" "$pid" || killed="$killed $pid" ended=$((ended + 1))
  done
  # The next look is for others.
  [ "$until" ] || { up; until=$((now + 3)); }
  gone "$@"
done
echo "ended $ended left $left"
