#!/usr/bin/env bash
# Fails if tracked text uses words that CONTRIBUTING.md advises against (its table is read here). Also fails if more
# sentences than before break its rules (sentences.py), or if a commit subject is longer than 72 characters or not
# imperative.
#
#   scripts/ci/check-words.sh          check
#   scripts/ci/check-words.sh --list   print each use
set -euo pipefail
cd "$(dirname "$0")/../.."

# Subjects are checked after this commit, except those of the commits named here.
base=81fc54a
known='58673ab 178e2c8 aa038be 454bea9 cf8b264 497a35b 39944b8'
# After this one, each begins with one of these verbs, behind its area. Add the verb that is missing.
imperative_base=1d378af
verbs='accept act add advise allocate allow answer ask assert avoid begin bind bound build cache call check choose clear close compare compile
    copy count cover cut declare delete derive describe do document draw drop end enumerate exclude expect explain export fail
    find follow forget format generate give guard handle hold ignore inherit inline install join keep know leave let limit link list load lock log
    look lower make map mark measure mend merge move name note notice open order park parse pass pin plot point prepare print
    prove publish put raise read recognize record reduce refuse reject release remove rename replace report require reserve resolve restore
    resume return reuse revert rewrite round run say search send separate set share ship shorten show sign simplify skip sort split
    start state step stop store strip suspend take tell test trace track treat try turn undo unify unmap unroll unpin update use verify wait
    warn wrap write'

# Never checked are a link to sources that are, this list of words, licenses, raw output, data.
exempt=(gdrapi-sys/src CONTRIBUTING.md scripts/ci/check-words.sh '*LICENSE-*' packaging/debian/copyright '*.svg' '*.lock' '*.patch')

# Not revised yet are these directories, with the uses that they may still have. Numbers may only shrink; remove a line
# at 0.
allowed=(
    '13 tests'
)

words=$(sed -n '/<!-- check-words: the first/,/<!-- check-words: end/p' CONTRIBUTING.md |
    awk -F'|' 'NF > 2 && !/^\| (do not write|---)/ { gsub(/^ +| +$/, "", $2); gsub(/, /, "|", $2); printf "%s%s", sep, $2; sep = "|" }')
[ -n "$words" ] || { echo "check-words: no table of words in CONTRIBUTING.md" >&2; exit 1; }

# Numbers may be odd, lines of memory too.
not_even='odd (number|lines?|ones|strides?)'

# uses PATH …: each use below the paths. An underscore separates words, so that names of functions and tests count too.
uses() {
    git ls-files -z -- "$@" "${exempt[@]/#/:(exclude)}" |
        xargs -0 --no-run-if-empty grep -IniE "(^|[^[:alnum:]])($words)([^[:alnum:]]|\$)" /dev/null |
        grep -viE "[^[:alnum:]]$not_even" || true
}

status=0
paths=()
for line in "${allowed[@]}"; do
    read -r limit path <<<"$line"
    paths+=(":(exclude)$path")
    count=$(uses "$path" | wc -l)
    if [ "$count" -gt "$limit" ]; then
        echo "check-words: $path has $count lines with words to avoid, $limit are allowed:" >&2
        uses "$path" >&2
        status=1
    elif [ "$count" -lt "$limit" ] && [ -e "$path" ]; then
        echo "check-words: $path: lower its limit in scripts/ci/check-words.sh from $limit to $count"
    fi
    [ "${1:-}" != --list ] || uses "$path"
done
if found=$(uses . "${paths[@]}") && [ -n "$found" ]; then
    printf 'check-words: see the table in CONTRIBUTING.md for what to write instead:\n%s\n' "$found" >&2
    status=1
fi

scripts/ci/sentences.py "$@" || status=1

if git rev-parse --quiet --verify "$base^{commit}" >/dev/null; then
    long=$(git log --no-merges --format='%h %s' "$base..HEAD" | awk -v known="$known" 'length($0) - length($1) - 1 > 72 && index(known, substr($1, 1, 7)) == 0')
    if [ -n "$long" ]; then
        printf 'check-words: commit subjects of more than 72 characters:\n%s\n' "$long" >&2
        status=1
    fi
fi
if git rev-parse --quiet --verify "$imperative_base^{commit}" >/dev/null; then
    other=$(git log --no-merges --format='%h %s' "$imperative_base..HEAD" | awk -v verbs=" ${verbs//[[:space:]]/  } " '
        { subject = $0; sub(/^[^ ]+ /, "", subject); sub(/^.*: /, "", subject); split(tolower(subject), word, /[ ,]/) }
        index(verbs, " " word[1] " ") == 0')
    if [ -n "$other" ]; then
        printf 'check-words: commit subjects without an imperative, such as "copy: refuse ...":\n%s\n' "$other" >&2
        status=1
    fi
fi
exit "$status"
