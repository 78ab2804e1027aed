/* gdrcopy_sanity: tests a libgdrapi.so.2 and its driver, with the test names of NVIDIA's GDRCopy 2.6. */

#include "runner.h"
#include "tables.h"

int option_verbose = 0;

static int option_summary = 1, option_list = 0, option_extended = 0;

/* ---- All tests, in order ---- */

static const struct test *const tables[] = {
    attribute_tests,    basic_tests, data_validation_tests, mix_mappings_tests,
    invalidation_tests, fork_tests,  socket_tests,          leakage_tests,
};

#define MOST_RUNS 256
#define LONGEST_NAME 128

static struct run all[MOST_RUNS];
static size_t all_count = 0;

static void add(const struct test *test, enum gpu_memory kind, const char *suffix)
{
    static char names[MOST_RUNS][LONGEST_NAME];
    struct run *run = &all[all_count];

    CHECK(all_count < MOST_RUNS);
    snprintf(names[all_count], LONGEST_NAME, "%s%s", test->name, suffix);
    run->name = names[all_count++];
    run->test = test;
    run->kind = kind;
}

static void add_all(void)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        for (const struct test *test = tables[i]; test->name != NULL; test++) {
            add(test, MEM_ALLOC, test->variants == BOTH_KINDS ? "_cumemalloc" : "");
            if (test->variants == BOTH_KINDS)
                add(test, MEM_CREATE, "_vmmalloc");
        }
}

/* ---- The chosen tests ---- */

static struct run chosen[MOST_RUNS];
static size_t chosen_count = 0;

static void choose(const struct run *run)
{
    CHECK(chosen_count < MOST_RUNS);
    chosen[chosen_count++] = *run;
}

static void choose_by_name(const char *name)
{
    for (size_t i = 0; i < all_count; i++)
        if (strcmp(all[i].name, name) == 0) {
            choose(&all[i]);
            return;
        }
    fprintf(stderr, "gdrcopy_sanity: no test %s; list all with -l -e\n", name);
    exit(1);
}

static void choose_default(void)
{
    for (size_t i = 0; i < all_count; i++)
        if (option_extended || !all[i].test->extended)
            choose(&all[i]);
}

/* ---- Command line ---- */

static void print_usage(FILE *stream)
{
    fputs("usage: gdrcopy_sanity [options]\n"
          "\n"
          "Tests libgdrapi and its driver. Exit status 0 if all tests passed or were waived, 1 if any failed.\n"
          "\n"
          "  -v        print what each test does\n"
          "  -s        no summary\n"
          "  -l        list the tests and exit\n"
          "  -t TEST   run this test only; may be repeated\n"
          "  -d GPU    number of the GPU (default: 0)\n"
          "  -e        also run the extended tests, which take longer\n"
          "  -h        this text\n",
          stream);
}

static int number_of(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || number < 0 || number > 1023) {
        fprintf(stderr, "gdrcopy_sanity: -d must be the number of a GPU, not \"%s\"\n", text);
        exit(1);
    }
    return (int)number;
}

static void read_options(int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "vslt:d:eh")) != -1)
        switch (option) {
        case 'v':
            option_verbose = 1;
            break;
        case 's':
            option_summary = 0;
            break;
        case 'l':
            option_list = 1;
            break;
        case 't':
            choose_by_name(optarg);
            break;
        case 'd':
            gpu_under_test = number_of(optarg);
            break;
        case 'e':
            option_extended = 1;
            break;
        case 'h':
            print_usage(stdout);
            exit(0);
        default:
            print_usage(stderr);
            exit(1);
        }
    if (optind < argc) {
        print_usage(stderr);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0); /* keeps the order with stderr and with what the tests print */
    add_all();
    read_options(argc, argv);
    if (chosen_count == 0)
        choose_default();
    for (size_t i = 0; i < chosen_count; i++) {
        if (option_list) {
            puts(chosen[i].name);
            continue;
        }
        run_in_child(&chosen[i]);
        failed |= chosen[i].verdict == FAILED;
    }
    if (option_summary && !option_list)
        print_summary(chosen, chosen_count);
    return failed;
}
