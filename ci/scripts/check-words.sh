#!/usr/bin/env bash
# Fails if tracked text uses words of the table in CONTRIBUTING.md, if a commit's subject is longer than 72 characters
# or not imperative, or if a commit with more than a few lines has no body that gives the reason.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The subjects of commits after this one are checked. After the area and a colon, a subject begins with one of the verbs
# below. If a verb is missing, add it to them.
base=1d378af
# For commits after this one, the bodies are checked, too, and the messages of merges.
reasons_base=e1c61e5a
verbs='accept act add advise allocate allow answer ask assert avoid begin bind bound build cache call check choose clear close compare compile
    copy count cover cut declare delete derive describe do document draw drop end enumerate escape exclude expect explain export fail
    find follow forget format generate give guard handle hold ignore import inherit inline install join keep know leave let limit link list load lock log
    look lower make map mark measure mend merge move name note notice open order park parse pass pin plot point prepare print
    prove publish put raise read rebuild recognize record reduce refuse reject release remove rename replace report require reserve resolve restore
    resume return reuse revert rewrite round run say search select send separate set share ship shorten show sign simplify skip sort split
    start state step stop store strip suspend take tell test trace track treat try turn undo unify unmap unroll unpin update use verify wait
    warn wrap write'

# These are never checked: a link to sources that are checked anyway, the table of words and this script, licenses, raw
# output, and data.
exempt=(crates/gdrapi-sys/src CONTRIBUTING.md ci/scripts/check-words.sh '*LICENSE-*' packaging/debian/copyright '*.svg' '*.lock' '*.patch' docs/data/messages.txt)

words=$(sed -n '/<!-- check-words: the first/,/<!-- check-words: end/p' CONTRIBUTING.md |
    awk -F'|' 'NF > 2 && !/^\| (do not write|---)/ { gsub(/^ +| +$/, "", $2); gsub(/, /, "|", $2); printf "%s%s", sep, $2; sep = "|" }')
[ -n "$words" ] || { echo "check-words: no table of words in CONTRIBUTING.md" >&2; exit 1; }

# The table of words forbids "odd" in the sense of "invalid". But a number or a line of memory may be odd (not even).
not_even='odd (number|lines?|ones|strides?)'

status=0
# An underscore separates words, so that names of functions and tests count too.
found=$(git ls-files -z -- . "${exempt[@]/#/:(exclude)}" |
    xargs -0 grep -IniE "(^|[^[:alnum:]])($words)([^[:alnum:]]|\$)" /dev/null | grep -viE "[^[:alnum:]]$not_even" || true)
if [ -n "$found" ]; then
    printf 'check-words: see the table in CONTRIBUTING.md for what to write instead:\n%s\n' "$found" >&2
    status=1
fi

# A copy of the sources without git's history has no commits to check.
if git rev-parse --quiet --verify "$base^{commit}" >/dev/null; then
    wrong=$(git log --no-merges --format='%h %s' "$base..HEAD" | awk -v verbs=" ${verbs//[[:space:]]/  } " '
        { subject = $0; sub(/^[^ ]+ /, "", subject); length_of = length(subject)
          sub(/^.*: /, "", subject); split(tolower(subject), word, /[ ,]/) }
        length_of > 72 || index(verbs, " " word[1] " ") == 0')
    if [ -n "$wrong" ]; then
        printf 'check-words: subjects of more than 72 characters, or without an imperative ("copy: refuse ..."):\n%s\n' "$wrong" >&2
        status=1
    fi

    # Finds merges with the subject that git proposes, or with git's list of conflicts.
    merges=$(git log --merges --format='%h %s %b' "$reasons_base..HEAD" | grep -E "^[0-9a-f]+ Merge (branch|remote|commit)|^# Conflicts" || true)
    # Finds commits that have no body, but change more than a few lines of code. Moves, renames and formatting need no body.
    silent=$(git log --no-merges --format='%h %s' "$reasons_base..HEAD" | while read -r commit subject; do
        [ -z "$(git show --no-patch --format=%b "$commit")" ] || continue
        grep -qE ': (move|rename|format) ' <<<"$subject" && continue
        changed=$(git show --numstat --format= "$commit" -- ':!*.md' | awk '{ sum += $1 } END { print sum + 0 }')
        [ "$changed" -le 20 ] || echo "$commit $subject"
    done)
    if [ -n "$merges$silent" ]; then
        printf 'check-words: merges that do not say what came, and commits without the reason in a body:\n%s\n' "$merges$silent" >&2
        status=1
    fi
fi
exit "$status"
