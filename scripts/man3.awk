# awk -v directory=DIR -v source=NAME\ X.Y.Z -v date=YYYY-MM-DD -f scripts/man3.awk include/NAME.h [docs/usage.md]
#
# Writes the man page NAME.3 from the comments of the header, and a link to it for each function. The environment
# variables come from the table in docs/usage.md.

function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text ~ /^[.']/ ? "\\&" text : text
}

# Returns the text with the names of functions in bold.
function marked(text,   out, name) {
    text = escaped(text)
    while (match(text, /gdrx?_[a-z0-9_]+/)) {
        name = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1) (name in prototypes || name in aliases ? "\\fB" name "\\fR" : name)
        text = substr(text, RSTART + RLENGTH)
    }
    return out text
}

function code(text) {
    gsub(/\n$/, "", text)
    print ".EX\n" escaped(text) "\n.EE" >file
}

function function_section(name,   count, paragraphs, i, text) {
    print ".SS " name >file
    code(prototypes[name])
    count = split(comments[name], paragraphs, "\n\n")
    for (i = 1; i <= count; i++) {
        text = paragraphs[i]
        gsub(/\n/, " ", text)
        print ".PP\n" marked(text) >file
    }
}

function page(   count, paragraphs, i, text, heading) {
    count = split(overview, paragraphs, "\n\n")
    text = paragraphs[1]
    sub(/^[^:]*: /, "", text)
    sub(/\.$/, "", text)
    file = directory "/" header ".3"
    print ".TH " toupper(header) " 3 " date " \"" source "\" \"GDRCopy Library\"" >file
    print ".SH NAME\n" header " \\- " escaped(text) >file
    print ".SH SYNOPSIS\n.B #include <" header ".h>\n.PP\nLink with \\fI\\-l" header (needed ? " \\-l" needed : "") "\\fR." >file
    print ".SH DESCRIPTION" >file
    for (i = 2; i <= count; i++) {
        text = paragraphs[i]
        if (text ~ /^    /) {
            print ".PP" >file
            code(text)
            continue
        }
        gsub(/\n/, " ", text)
        if (match(text, /^([A-Z][a-z]+|---- .* ----)\. /)) {
            heading = substr(text, 1, RLENGTH - 2)
            gsub(/^---- | ----$/, "", heading)
            print ".SS " heading >file
            text = substr(text, RLENGTH + 1)
        } else if (i > 2)
            print ".PP" >file
        print marked(text) >file
    }
    print ".SS Types" >file
    for (i = 1; i <= types; i++) {
        if (i > 1) print ".PP" >file
        code(type_texts[i])
    }
    print ".SH FUNCTIONS" >file
    for (i = 1; i <= functions; i++) function_section(names[i])
    if (variables) print ".SH ENVIRONMENT\nAll are read at each \\fBgdr_open\\fR." >file
    for (i = 1; i <= variables; i++) print ".TP\n.B " variable_names[i] "\n" marked(variable_effects[i]) >file
    if (variables) print ".SH FILES\n.TP\n.I /dev/gdrdrv\nthe device of the kernel module gdrdrv" >file
    print ".SH SEE ALSO" >file
    print needed ? ".BR " needed " (3)" : ".BR gdrcopy (1),\n.BR gdrdrv-load (8)" >file
}

function strip(line) {
    sub(/^ \* ?/, "", line)
    return line
}

FNR == 1 && ++document == 1 {
    header = FILENAME
    gsub(/.*\/|\.h$/, "", header)
}

# These rules read the header.
document == 1 && /^\/\*$/ {
    # The first comment of this kind is the overview. A later one is about the functions after it, and gets a heading.
    if (overview) overview = overview "\n" section ". "
    state = "overview"
    next
}
document == 1 && /^#include "/ { needed = substr($2, 2, length($2) - 4) }
document == 1 && /^\/\*\*$/ { state = "comment"; comment = ""; next }
document == 1 && /^ \*\/$/ { state = state == "comment" ? "prototype" : ""; prototype = ""; next }
state == "overview" { overview = overview strip($0) "\n"; next }
state == "comment" { comment = comment strip($0) "\n"; next }
state == "prototype" {
    # A brace begins the body of an inline function, which is left out.
    if (/^\{$/) sub(/\n$/, ";\n", prototype)
    else prototype = prototype $0 "\n"
    if (/;$|^\{$/) {
        sub(/^static inline /, "", prototype)
        match(prototype, /gdrx?_[a-z0-9_]+\(/)
        name = substr(prototype, RSTART, RLENGTH - 1)
        names[++functions] = name
        comments[name] = comment
        prototypes[name] = prototype
        state = ""
    }
    next
}
document == 1 && /^#define gdr_[a-z0-9_]+ gdr_/ { aliases[$2] = $3; next }
document == 1 && /^\/\* ---- .* \*\/$/ { section = substr($0, 4, length($0) - 6); next }
document == 1 && /^\/\* .* \*\/$/ { above = $0 "\n"; next }
document == 1 && /^(typedef )?(struct|enum) / {
    state = "type"
    type = above
}
state == "type" {
    type = type $0 "\n"
    # `struct gdr;` and the typedef of gdr_t after it are one text.
    if (/;$/ && !/^struct gdr;$/ && !/^    /) {
        type_texts[++types] = type
        state = ""
    }
    next
}
document == 1 { above = "" }

# This rule reads the table of docs/usage.md.
document == 2 && /^\| `GDRCOPY_/ {
    split($0, cells, / *\| */)
    variable_names[++variables] = substr(cells[2], 2, length(cells[2]) - 2)
    text = cells[3]
    gsub(/`/, "", text)
    gsub(/\]\([^)]*\)/, "", text)
    gsub(/\[/, "", text)
    variable_effects[variables] = text
}

END {
    if (!functions || !types || (document > 1 && !variables)) {
        print "man3.awk: functions, types or variables are missing" >"/dev/stderr"
        exit 1
    }
    page()
    close(file)
    for (name in prototypes) print ".so man3/" header ".3" >(directory "/" name ".3")
    for (name in aliases) print ".so man3/" header ".3" >(directory "/" name ".3")
}
