/* Tests of gdrx.h: batches, gathers and words. CUDA must see the same bytes. The program runs with any libgdrapi. */

#include "gdrx.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit/fault.h"
#include "kit/library.h"
#include "logged.h"

#define SIZE GPU_PAGE_SIZE
#define MANY 3000
/* The size of the largest copy in bytes. Copies above 2 KiB are read one by one, not together with others. */
#define LARGEST 9000

static gdr_t g;
static struct gpu_buffer buffer;
static gdr_mh_t handle;
static unsigned char *va;
static struct gdrx_map all;

static unsigned char host[MANY * 64 + 64 * LARGEST], wanted[SIZE], seen[SIZE];
static struct gdrx_copy copies[MANY];

/* Returns a pseudorandom number below `limit`. */
static size_t any(size_t limit)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005 + 1442695040888963407;
    return (size_t)(state >> 33) % limit;
}

/* Returns a size for copy number n. Every sixteenth copy is empty, and every fourth has the size of a word. */
static size_t any_size(size_t n, size_t largest)
{
    if (n % 16 == 0)
        return 0;
    if (n % 4 == 1)
        return (size_t)1 << any(4);
    return any(largest + 1);
}

/* Fills `copies` with copies of up to `largest` bytes that do not overlap, and returns how many there are. */
static size_t lay_out(size_t largest)
{
    size_t offset = any(64);
    size_t at = 0;
    size_t n = 0;

    while (n < MANY) {
        size_t size = any_size(n, largest);

        if (offset + size > SIZE)
            break;
        copies[n++] = (struct gdrx_copy){offset, size == 0 ? NULL : host + at, size};
        at += size + any(3);
        offset += size + any(9);
    }
    return n;
}

static void write_and_compare(size_t largest, unsigned seed)
{
    size_t n = lay_out(largest);

    fill(host, sizeof(host), seed);
    memset(wanted, 0xee, SIZE);
    gpu_write(buffer.address, wanted, SIZE);
    for (size_t i = 0; i < n; i++)
        if (copies[i].size > 0)
            memcpy(wanted + copies[i].offset, copies[i].host, copies[i].size);
    CHECK_OK(gdrx_write_many(&all, copies, n));
    CHECK_OK(gdrx_flush(&all));
    gpu_read(seen, buffer.address, SIZE);
    CHECK_BYTES(seen, wanted, SIZE);
}

static void read_and_compare(size_t largest, unsigned seed)
{
    size_t n = lay_out(largest);

    fill(wanted, SIZE, seed);
    gpu_write(buffer.address, wanted, SIZE);
    memset(host, 0xee, sizeof(host));
    CHECK_OK(gdrx_read_many(&all, copies, n));
    for (size_t i = 0; i < n; i++) {
        if (copies[i].size == 0)
            continue;
        CHECK_BYTES(copies[i].host, wanted + copies[i].offset, copies[i].size);
        memset(copies[i].host, 0xee, copies[i].size);
    }
    for (size_t i = 0; i < sizeof(host); i++)
        CHECK_EQUAL(host[i], 0xee);
}

static void copies_of_all_sizes(void (*copy_and_compare)(size_t largest, unsigned seed))
{
    static const size_t largest[] = {8, 64, 300, LARGEST};
    unsigned rounds_each = (unsigned)rounds(100);

    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++)
        for (unsigned round = 0; round < rounds_each; round++)
            copy_and_compare(largest[i], round);
}

#define WORD(bits)                                                                                                           \
    do {                                                                                                                     \
        uint##bits##_t word = 0;                                                                                             \
                                                                                                                             \
        for (offset = 0; offset <= 64; offset += bits / 8) {                                                                 \
            CHECK(gdrx_is_word(&all, offset, bits / 8));                                                                     \
            gdrx_store_u##bits(&all, offset, (uint##bits##_t)(0x8877665544332211u + offset));                                \
            gpu_read(&word, buffer.address + offset, sizeof(word));                                                          \
            CHECK_EQUAL(word, (uint##bits##_t)(0x8877665544332211u + offset));                                               \
            CHECK_EQUAL(gdrx_load_u##bits(&all, offset), word);                                                              \
            gdrx_begin();                                                                                                    \
            gdrx_store_u##bits##_unfenced(&all, offset, (uint##bits##_t)~word);                                              \
            gdrx_fence(&all);                                                                                                \
            CHECK_EQUAL(gdrx_load_u##bits(&all, offset), (uint##bits##_t)~word);                                             \
        }                                                                                                                    \
    } while (0)

static void words_are_stored_and_loaded(void)
{
    size_t offset;

    WORD(8);
    WORD(16);
    WORD(32);
    WORD(64);
    CHECK(gdrx_is_word(&all, SIZE - 8, 8));
    CHECK(!gdrx_is_word(&all, SIZE - 7, 8) && !gdrx_is_word(&all, SIZE, 1) && !gdrx_is_word(&all, SIZE_MAX, 1));
    CHECK(!gdrx_is_word(&all, 2, 4) && !gdrx_is_word(&all, 0, 3) && !gdrx_is_word(&all, 0, 16) && !gdrx_is_word(&all, 0, 0));
}

/* Stores small words into parts of a large word. The compiler must not assume that words of two sizes never overlap. */
static void words_of_different_sizes_overlap(void)
{
    gdrx_store_u64(&all, 0, 0x8877665544332211u);
    gdrx_begin();
    gdrx_store_u32_unfenced(&all, 4, 0xddccbbaau);
    gdrx_store_u16_unfenced(&all, 2, 0xffeeu);
    gdrx_store_u8_unfenced(&all, 0, 0x99);
    gdrx_fence(&all);
    CHECK(gdrx_load_u64(&all, 0) == 0xddccbbaaffee2299u);
    CHECK_EQUAL(gdrx_load_u8(&all, 1), 0x22);
}

static void unfenced_writes_arrive(void)
{
    size_t size;

    fill(host, SIZE, 7);
    gdrx_begin();
    for (size_t i = 0; i < SIZE; i += size) {
        size = 1 + i % 100;
        size = size < SIZE - i ? size : SIZE - i;
        CHECK_OK(gdrx_write_unfenced(&all, i, host + i, size));
    }
    gdrx_fence(&all);
    CHECK_OK(gdrx_flush(&all));
    gpu_read(seen, buffer.address, SIZE);
    CHECK_BYTES(seen, host, SIZE);
}

/* Copies in a gdrx_map of the last 512 bytes of a mapping. An access past these would fault or change other memory. */
static void copies_stay_within_the_map(void)
{
    gdr_mh_t page = pin(g, buffer.address, SIZE);
    unsigned char *start = map(g, page, SIZE);
    struct gdrx_map end;

    CHECK_OK(gdrx_attach(&end, g, page, start + SIZE - 512, 512));
    for (size_t size = 1; size <= 512; size++) {
        for (size_t i = 0; i < 8; i++)
            copies[i] = (struct gdrx_copy){512 - size, seen + i * size, size};
        fill(host, size, (unsigned)size);
        CHECK_OK(gdrx_write_unfenced(&end, 512 - size, host, size));
        gdrx_fence(&end);
        CHECK_OK(gdrx_read_many(&end, copies, 8));
        for (size_t i = 0; i < 8; i++)
            CHECK_BYTES(seen + i * size, host, size);
    }
    unmap_and_unpin(g, page, start, SIZE);
}

static void refused_copies_copy_nothing(void)
{
    struct gdrx_map none = {0}, part;
    struct gdrx_copy good = {0, host, 16}, bad[2];
    static const struct {
        size_t offset, size;
    } outside[] = {{0, 101}, {100, 1}, {101, 0}, {SIZE_MAX, 1}, {SIZE_MAX, 2}, {1, SIZE_MAX}, {SIZE_MAX, SIZE_MAX}};

    CHECK_OK(gdrx_attach(&part, g, handle, va, 100));
    memset(wanted, 0xee, SIZE);
    gpu_write(buffer.address, wanted, SIZE);
    fill(host, SIZE, 3);
    memcpy(seen, host, SIZE);
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        bad[0] = good;
        bad[1] = (struct gdrx_copy){outside[i].offset, host, outside[i].size};
        CHECK_ERROR(gdrx_write_many(&part, bad, 2), EINVAL);
        CHECK_ERROR(gdrx_read_many(&part, bad, 2), EINVAL);
        CHECK_ERROR(gdrx_write_unfenced(&part, bad[1].offset, host, bad[1].size), EINVAL);
    }
    bad[1] = good;
    bad[1].host = NULL;
    CHECK_ERROR(gdrx_write_many(&part, bad, 2), EINVAL);
    CHECK_ERROR(gdrx_read_many(&part, bad, 2), EINVAL);
    CHECK_ERROR(gdrx_write_unfenced(&part, 0, NULL, 1), EINVAL);
    CHECK_ERROR(gdrx_write_many(NULL, &good, 1), EINVAL);
    CHECK_ERROR(gdrx_read_many(NULL, &good, 1), EINVAL);
    CHECK_ERROR(gdrx_write_many(&none, &good, 1), EINVAL);
    CHECK_ERROR(gdrx_read_many(&none, &good, 1), EINVAL);
    CHECK_ERROR(gdrx_write_many(&part, NULL, 1), EINVAL);
    CHECK_ERROR(gdrx_read_many(&part, NULL, 1), EINVAL);
    CHECK_ERROR(gdrx_write_many(&part, &good, SIZE_MAX), EINVAL);
    CHECK_ERROR(gdrx_flush(NULL), EINVAL);
    CHECK_ERROR(gdrx_flush(&none), EINVAL);
    CHECK_OK(gdrx_write_many(&part, NULL, 0));
    CHECK_OK(gdrx_read_many(&part, NULL, 0));
    CHECK_OK(gdrx_write_unfenced(&part, 100, NULL, 0));
    CHECK_BYTES(host, seen, SIZE);
    gpu_read(seen, buffer.address, SIZE);
    CHECK_BYTES(seen, wanted, SIZE);
}

static void only_mapped_bytes_are_attached(void)
{
    struct gdrx_map map = {0}, zero = {0};
    gdr_mh_t other = pin(g, buffer.address, SIZE);

    CHECK_ERROR(gdrx_attach(&map, g, other, va, SIZE), EINVAL);
    CHECK_OK(gdr_unpin_buffer(g, other));
    CHECK_ERROR(gdrx_attach(NULL, g, handle, va, SIZE), EINVAL);
    CHECK_ERROR(gdrx_attach(&map, g, handle, NULL, SIZE), EINVAL);
    CHECK_ERROR(gdrx_attach(&map, g, handle, va, 0), EINVAL);
    CHECK_ERROR(gdrx_attach(&map, g, handle, va, SIZE + 1), EINVAL);
    CHECK_ERROR(gdrx_attach_mapping(&map, GDR_MAPPING_TYPE_MAX, SIZE, va, SIZE), EINVAL);
    CHECK_BYTES(&map, &zero, sizeof(map));
    CHECK_EQUAL(all.type, info_of(g, handle).mapping_type);
    CHECK(all.address == va && all.size == SIZE);
}

/*
 * Makes calls that must fail: with a size above the mapping's, a copy outside the map, a host address of NULL, and a
 * number that is no descriptor. CUDA is not initialized yet, so there is no GPU memory, and the map is of host memory.
 */
static void fail_in_every_way(void)
{
    struct gdrx_map map;
    struct gdrx_copy copy = {SIZE, host, 1};

    gdrx_attach_mapping(&map, GDR_MAPPING_TYPE_CACHING, SIZE, seen, SIZE + 1);
    CHECK_OK(gdrx_attach_mapping(&map, GDR_MAPPING_TYPE_CACHING, SIZE, seen, SIZE));
    gdrx_write_many(&map, &copy, 1);
    copy.offset = 0;
    copy.host = NULL;
    gdrx_read_many(&map, &copy, 1);
    gdrx_map_dmabuf(&map, 1000, 0, SIZE, GDR_MAPPING_TYPE_WC);
}

static void failures_are_logged_with_advice(void)
{
    const char *log = log_of(fail_in_every_way, "4");

    CHECK_LOGGED(log, "ERR:  gdrx_attach_mapping: `size` is 65537: pass 1 to 65536, the bytes that are mapped\n");
    CHECK_LOGGED(log, "ERR:  gdrx_write_many: `size` 1 at `offset` 65536 of copy 0: stay inside the 65536 bytes of `map`\n");
    CHECK_LOGGED(log, "ERR:  gdrx_read_many: `host` of copy 0 is NULL: pass the address of its bytes\n");
    CHECK_LOGGED(log, "the program has closed the descriptor, or has passed a wrong one\n");
}

static void child_is_refused(void)
{
    struct gdrx_copy copy = {0, host, 8};
    uint64_t offset;
    int fd;

    CHECK_ERROR(gdrx_write_many(&all, &copy, 1), EACCES);
    CHECK_ERROR(gdrx_write_many(&all, NULL, 0), EACCES);
    CHECK_ERROR(gdrx_read_many(&all, &copy, 1), EACCES);
    CHECK_ERROR(gdrx_write_unfenced(&all, 0, host, 8), EACCES);
    CHECK_ERROR(gdrx_flush(&all), EACCES);
    CHECK_ERROR(gdrx_dmabuf(buffer.address, 8, 0, &fd, &offset), EACCES);
    CHECK_UNMAPPED(all.address);
    /* The child can attach a mapping of its own. */
    CHECK_OK(gdrx_attach_mapping(&all, GDR_MAPPING_TYPE_CACHING, sizeof(host), host, sizeof(host)));
    copy.host = seen;
    CHECK_OK(gdrx_read_many(&all, &copy, 1));
    CHECK_BYTES(seen, host, 8);
}

/* A plugin may load its own copy of libgdrx, which must accept this program's maps. Here, the copy is a file with
   another name. */
static void another_copy_of_the_library_takes_the_map(void)
{
    int (*const own)(const struct gdrx_map *, const struct gdrx_copy *, size_t) = gdrx_write_many;
    int (*write_many)(const struct gdrx_map *, const struct gdrx_copy *, size_t) = NULL;
    struct gdrx_copy copy = {128, host, 300};
    char path[64];
    void *library;
    struct stat file;
    Dl_info info;
    int from, to;

    if (dladdr(*(void *const *)&own, &info) == 0 || strstr(info.dli_fname, "libgdrx") == NULL)
        return; /* libgdrx is linked into this program statically */
    from = open(info.dli_fname, O_RDONLY);
    to = memfd_create("another libgdrx", 0);
    CHECK(from >= 0 && to >= 0 && fstat(from, &file) == 0);
    while (sendfile(to, from, NULL, (size_t)file.st_size) > 0)
        continue;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    *(void **)&write_many = dlsym(library, "gdrx_write_many");
    CHECK(write_many != NULL && write_many != gdrx_write_many);
    fill(host, 300, 21);
    CHECK_OK(write_many(&all, &copy, 1));
    CHECK_OK(gdrx_flush(&all));
    gpu_read(seen, buffer.address + 128, 300);
    CHECK_BYTES(seen, host, 300);
    close(from);
    close(to);
}

#define THREADS 4
#define PART (SIZE / THREADS)

/* Each thread attaches a gdrx_map to its own part of the mapping. It uses this gdrx_map, and the shared one, `all`. */
static void *use_part(void *argument)
{
    size_t start = *(size_t *)argument;
    unsigned char out[PART], in[PART];
    struct gdrx_copy writes[PART / 64], reads[PART / 64];
    long rounds_each = rounds(300);
    struct gdrx_map part;

    for (long round = 1; round <= rounds_each; round++) {
        /* Unlike gdrx_attach, this does not call the driver. gdrdrv 2.0 would refuse the calls of these threads. */
        CHECK_OK(gdrx_attach_mapping(&part, all.type, SIZE, va + start, PART));
        fill(out, PART, (unsigned)((size_t)round + start));
        for (size_t i = 0; i < PART / 64; i++) {
            writes[i] = (struct gdrx_copy){i * 64, out + i * 64, 64};
            reads[i] = (struct gdrx_copy){start + i * 64, in + i * 64, 64};
        }
        CHECK_OK(gdrx_write_many(&part, writes, PART / 64));
        gdrx_store_u64(&all, start, (uint64_t)round);
        memcpy(out, &round, 8);
        CHECK_OK(gdrx_flush(&part));
        CHECK_OK(gdrx_read_many(&all, reads, PART / 64));
        CHECK_BYTES(in, out, PART);
        CHECK_EQUAL(gdrx_load_u64(&part, 0), round);
    }
    return NULL;
}

static void threads_share_a_map(void)
{
    pthread_t threads[THREADS];
    size_t starts[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        starts[i] = i * PART;
        threads[i] = start_thread(use_part, &starts[i]);
    }
    for (size_t i = 0; i < THREADS; i++)
        finish_thread(threads[i]);
}

/* After mappings of two types were attached, libgdrx executes more fences, so that accesses to different mappings stay
   in order. Unfenced writes, and accesses to single words, must still work. */
static void mappings_of_several_types(void)
{
    struct gdrx_map other;

    CHECK_EQUAL(*all.several_types, 0);
    CHECK_OK(gdrx_attach_mapping(&other, all.type, SIZE, va, SIZE));
    CHECK_EQUAL(*all.several_types, 0);
    CHECK_OK(gdrx_attach_mapping(&other, all.type % 3 + 1, SIZE, va, SIZE));
    CHECK_EQUAL(*all.several_types, 1);
    words_are_stored_and_loaded();
    unfenced_writes_arrive();
}

/* Exports an unaligned range of the buffer as a dma-buf, if CUDA can. If the dma-buf can be mapped, writes to it. */
static void memory_is_exported(void)
{
    uint64_t address = buffer.address + 4099;
    uint64_t offset = 7;
    uint64_t huge = UINT64_MAX;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 1000;
    int fd = -1, other = -1;
    int result = gdrx_dmabuf(address, size, GDR_PIN_FLAG_DEFAULT, &fd, &offset);
    struct gdrx_map map;
    struct gdrx_copy copy = {0, host, size};

    CHECK_ERROR(gdrx_dmabuf(address, size, 0, NULL, &offset), EINVAL);
    CHECK_ERROR(gdrx_dmabuf(address, size, 0, &other, NULL), EINVAL);
    CHECK_ERROR(gdrx_dmabuf(address, size, 2, &other, &offset), EINVAL);
    CHECK_ERROR(gdrx_dmabuf(address, 0, 0, &other, &offset), EINVAL);
    CHECK_ERROR(gdrx_dmabuf(huge - 8, 16, 0, &other, &offset), EINVAL);
    if (result == EOPNOTSUPP) {
        CHECK(fd == -1 && offset == 7);
        return;
    }
    CHECK_OK(result);
    CHECK_EQUAL(offset, address % page);
    CHECK_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK(gdrx_dmabuf(address, SIZE_MAX / 2, 0, &other, &huge) != 0 && other == -1 && huge == UINT64_MAX);
    if (gdrx_map_dmabuf(&map, fd, offset, size, all.type) == 0) {
        fill(host, size, 9);
        CHECK_OK(gdrx_write_many(&map, &copy, 1));
        CHECK_OK(gdrx_flush(&map));
        gpu_read(seen, address, size);
        CHECK_BYTES(seen, host, size);
        CHECK_OK(gdrx_unmap_dmabuf(&map));
    }
    close(fd);
}

int main(void)
{
    CHECK_EQUAL(gdrx_version(), GDRX_MAJOR_VERSION << MAJOR_VERSION_SHIFT | GDRX_MINOR_VERSION);
    in_child(failures_are_logged_with_advice); /* in a new process, whose first attach reads the log's settings */
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    g = open_driver();
    handle = pin(g, buffer.address, SIZE);
    va = map(g, handle, SIZE);
    CHECK_OK(gdrx_attach(&all, g, handle, va, SIZE));

    copies_of_all_sizes(write_and_compare);
    copies_of_all_sizes(read_and_compare);
    words_are_stored_and_loaded();
    words_of_different_sizes_overlap();
    unfenced_writes_arrive();
    copies_stay_within_the_map();
    refused_copies_copy_nothing();
    only_mapped_bytes_are_attached();
    another_copy_of_the_library_takes_the_map();
    threads_share_a_map();
    in_child(child_is_refused);
    memory_is_exported();
    mappings_of_several_types();

    unmap_and_unpin(g, handle, va, SIZE);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("gdrx");
}
