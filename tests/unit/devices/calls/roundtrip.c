/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every generated function of one library: called with random arguments through its stub, the wire and its other end,
 * where a library made for that notes what came. Then the same requests with bytes changed and parts cut off.
 */
#include "tests/unit/devices/calls/roundtrip.h"

#include "guest-shim/cudalibs/call.h"
#include "guest-shim/cudalibs/several.h"
#include "tests/unit/runner.h"

#define ROUNDS	     12
#define MUTATIONS    40
#define DEVICE	     0x200000000000ull
#define DEVICE_BYTES (1ull << 40)
#define STREAM	     0x5000u
#define MAX_NOTES    (1u << 20)
#define MAX_HANDLES  64u
#define MAX_NEW	     8u
#define MAX_LIVE     64u
#define NATIVE	     0x100000u
#define TEXT	     "what the library says"
#define OWN_DEVICE   3

/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

struct notes {
	uint8_t bytes[MAX_NOTES];
	size_t len;
};

static struct notes wanted, found, *noting = &found;
static struct gantry_calls_site site;
static uint64_t state = 88172645463325252ull;
static uint64_t natives = NATIVE;
static uint64_t made[MAX_NEW];
static unsigned int nmade, nchecked;
static uint8_t filled, checked;
static void *live[MAX_LIVE];
static unsigned int nlive;
static uint64_t bound_handle;
static const char *tried_name = "";
static bool is_hostile, is_called, has_waited; /* the second: the library is */
static int mode, tried_mode;
/* Host memory that the device has too: the library gets it where it looks for such values. */
static const void *shared_memory;
static uint8_t *request;
static size_t request_len;
static struct {
	uint32_t kind;
	uint64_t handle;
} handles[MAX_HANDLES];
static unsigned int nhandles;
/* An object that works on the side that the mode says, as long as it lives. */
static struct {
	uint32_t kind;
	uint64_t handle;
} sided;

static bool has_modes(void)
{
	return strcmp(tried->name, "cublas") == 0 || strcmp(tried->name, "cublasLt") == 0 ||
	       strcmp(tried->name, "cusparse") == 0 || strcmp(tried->name, "curand") == 0;
}

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static bool is_device(const void *at)
{
	return (uintptr_t)at - DEVICE < DEVICE_BYTES;
}

/* ---- notes ---- */

void note_bytes(const void *bytes, size_t len)
{
	if (is_hostile) {
		/* Touched, for a sanitizer to see. */
		for (size_t i = 0; i < len; i++)
			state += ((const volatile uint8_t *)bytes)[i];
		return;
	}
	ck_assert_uint_le(len, MAX_NOTES - noting->len);
	memcpy(noting->bytes + noting->len, bytes, len);
	noting->len += len;
}

void note_u64(uint64_t value)
{
	note_bytes(&value, sizeof(value));
}

void note_object(uint64_t native)
{
	/* Libraries do not all look. */
	ck_assert_uint_ne(native, 0);
	note_u64(native);
}

static void note_at(const void *at, uint64_t len)
{
	note_u64(at ? len : UINT64_MAX);
	if (at && is_device(at))
		note_u64((uintptr_t)at);
	else if (at)
		note_bytes(at, len);
}

void note_memory(const void *at, uint64_t len)
{
	/* Libraries are compiled for values that lie where their type wants them; a double complex is what wants most. */
	if (at && !is_device(at) && len >= GANTRY_CALLS_ALIGNMENT && is_called)
		ck_assert_msg((uintptr_t)at % GANTRY_CALLS_ALIGNMENT == 0, "%s: %p", tried_name,
			      at);
	note_at(at, len);
}

void note_addresses(const void *at, uint64_t len)
{
	note_at(at, len);
}

void note_text(const char *text)
{
	note_at(text, text ? strlen(text) + 1 : 0);
}

void note_texts(const char *const *texts, int64_t count)
{
	note_u64(texts ? 1 : 0);
	for (int64_t i = 0; texts && i < count; i++)
		note_text(texts[i]);
}

/* ---- the library ---- */

void note_name(const char *name)
{
	noting = &found;
	noting->len = 0;
	note_text(name);
}

void bound_to(void *stream)
{
	ck_assert(is_hostile || (uintptr_t)stream >= STREAM);
}

bool is_expected(const char *name)
{
	uint64_t len = strlen(name) + 1;

	return wanted.len >= sizeof(len) + len &&
	       memcmp(wanted.bytes + sizeof(len), name, len) == 0;
}

int64_t mock_parts(uint32_t kind, uint64_t native)
{
	uint64_t id = gantry_calls_table_known(&site.table, kind, native);
	const struct gantry_calls_object *object = gantry_calls_table_find(&site.table, kind, id);

	return object ? 1 + (int64_t)object->more_parts : 1;
}

int mock_mode(void)
{
	return mode;
}

void fill(void *at, uint64_t len)
{
	if (at && !is_device(at))
		memset(at, ++filled, len);
}

void new_handle(void *to, size_t len)
{
	uint64_t native = ++natives;

	memcpy(to, &native, len);
	if (nmade < MAX_NEW)
		made[nmade++] = native;
}

const char *mock_text(void)
{
	return TEXT;
}

void *mock_table(uint64_t len)
{
	static uint8_t table[12 << 20];

	ck_assert_uint_le(len, sizeof(table));
	for (uint64_t i = 0; i < len; i += 61)
		table[i] = (uint8_t)i;
	return table;
}

/* ---- the caller ---- */

void expect(const char *name)
{
	noting = &wanted;
	noting->len = 0;
	found.len = 0;
	tried_mode = mode;
	nmade = nchecked = 0;
	filled = checked = 0;
	bound_handle = 0;
	note_text(name);
}

void expect_bound(uint64_t handle)
{
	bound_handle = handle;
	gantry_call_set_stream(handle, some_stream());
}

void done_expecting(void)
{
	noting = &found;
}

uint64_t native_of(uint32_t kind, uint64_t handle)
{
	const struct gantry_calls_object *object;
	int device;

	/* Of a library whose objects know their device it has that too. */
	object = gantry_calls_table_find(&site.table, kind, gantry_several_number(handle, &device));
	return object ? object->native : 0;
}

void random_bytes(void *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)to)[i] = (uint8_t)next();
}

int small(void)
{
	return (int)(next() % 8);
}

uint64_t some_handle(uint32_t kind, bool may_be_null)
{
	if (may_be_null && next() % 4 == 0)
		return 0;
	for (unsigned int i = 0; i < nhandles; i++)
		if (handles[i].kind == kind && native_of(kind, handles[i].handle) && next() % 3)
			return handles[i].handle;
	nhandles %= MAX_HANDLES;
	handles[nhandles].kind = kind;
	handles[nhandles].handle = gantry_calls_table_add(&site.table, kind, ++natives);
	ck_assert_uint_ne(handles[nhandles].handle, 0);
	return handles[nhandles++].handle;
}

void some_side(uint32_t kind, uint64_t handle)
{
	sided.kind = kind;
	sided.handle = handle;
	gantry_call_set_mode(handle, mode);
}

int64_t some_parts(uint32_t kind, uint64_t handle)
{
	struct gantry_calls_object *object = gantry_calls_table_find(&site.table, kind, handle);
	int64_t n = 1 + small();

	/* Another may have had the handle's place; the library takes what is none for one. */
	n = object ? n : 1;
	gantry_call_set_parts(handle, n);
	if (object)
		object->more_parts = (uint32_t)n - 1;
	return n;
}

void *some_stream(void)
{
	return (void *)(uintptr_t)(STREAM + 16 * (next() % 4));
}

void *some_device(void)
{
	return next() % 8 ? (void *)(uintptr_t)(DEVICE + next() % DEVICE_BYTES) : NULL;
}

static void *keep(void *memory)
{
	ck_assert(memory && nlive < MAX_LIVE);
	live[nlive++] = memory;
	return memory;
}

const char *some_text(void)
{
	size_t len = next() % 50;
	char *text = keep(malloc(len + 1));

	memset(text, 'a' + (int)(next() % 26), len);
	text[len] = 0;
	return text;
}

void *some_texts(int64_t count, bool may_be_null)
{
	const char **texts = may_be_null && next() % 8 == 0
				     ? NULL
				     : keep(malloc((size_t)(count + 1) * sizeof(*texts)));

	for (int64_t i = 0; texts && i < count; i++)
		texts[i] = some_text();
	return texts;
}

void *some_memory(uint64_t len, bool either, bool may_be_null)
{
	void *memory;

	if (may_be_null && next() % 8 == 0)
		return NULL;
	if (either && mode == 1)
		return (void *)(uintptr_t)(DEVICE + next() % DEVICE_BYTES);
	/* Exactly so long: a sanitizer sees who reads further. */
	memory = keep(malloc(len ? len : 1));
	random_bytes(memory, len);
	if (either && has_modes() && next() % 2)
		shared_memory = memory;
	return memory;
}

void *keep_zeroed(size_t len)
{
	return keep(calloc(1, len));
}

void *own_devices(int n)
{
	int *devices = keep_zeroed((size_t)n * sizeof(*devices));

	for (int i = 0; i < n; i++)
		devices[i] = OWN_DEVICE;
	return devices;
}

void *some_addresses(int64_t n)
{
	void **addresses = keep(malloc((size_t)n * sizeof(*addresses)));

	for (int64_t i = 0; i < n; i++)
		addresses[i] = some_device();
	return addresses;
}

void some_matrix(void *rows, void *ends, int64_t nrows, void *columns, int64_t ncolumns,
		 int64_t nonzeros)
{
	int32_t base = (int32_t)(next() % 2), at = base, *begins = rows, *of_it = columns;

	/* The library's own, which cannot ask what it counts from, counts from 0. */
	if (strncmp(tried_name, "cusolverRf", 10) == 0)
		at = base = 0;
	for (int64_t i = 0; i < nrows; i++) {
		begins[i] = at;
		at += (int32_t)(next() % (uint64_t)(nonzeros + base - at + 1));
		if (ends)
			((int32_t *)ends)[i] = at;
	}
	begins[nrows] = (int32_t)nonzeros + base;
	for (int64_t i = 0; i < nonzeros; i++)
		of_it[i] = (int32_t)(next() % (uint64_t)ncolumns) + base;
}

void some_permutation(void *at, int64_t n)
{
	int32_t *numbers = at, offset = (int32_t)(next() % 8);

	for (int64_t i = 0; i < n; i++)
		numbers[i] = (int32_t)((i + offset) % n);
}

void go_before(uint32_t kind, uint64_t handle, const struct gantry_calls_step *step)
{
	static int32_t rows[9], columns[8];
	struct gantry_calls_run run = { .site = &site };
	struct gantry_calls_step before = *step;

	/* What the call leaves out was there in the first. */
	before.n = step->n >= 0 ? step->n : 8;
	before.nonzeros = step->nonzeros >= 0 ? step->nonzeros : 0;
	before.rows = step->rows ? step->rows : rows;
	before.columns = step->columns ? step->columns : columns;
	ck_assert_int_le(before.m >= 0 ? before.m : before.n, 8);
	ck_assert_int_le(before.nonzeros, 8);
	for (before.what = GANTRY_CALLS_ANALYSE; before.what < step->what; before.what++) {
		gantry_calls_need_step(&run, kind, handle, &before);
		ck_assert(!run.in.failed);
		gantry_calls_note_step(&run, &before, MOCK_LENGTH);
	}
}

void check_notes(void)
{
	ck_assert_uint_eq(found.len, wanted.len);
	ck_assert_mem_eq(found.bytes, wanted.bytes, wanted.len);
}

void check_fill(const void *at, uint64_t len, bool always)
{
	if ((!at && !always) || is_device(at))
		return;
	checked++;
	for (uint64_t i = 0; at && i < len; i++)
		ck_assert_uint_eq(((const uint8_t *)at)[i], checked);
}

void check_new(uint32_t kind, uint64_t handle, size_t len)
{
	ck_assert_uint_lt(nchecked, nmade);
	ck_assert(len == 8 || handle <= INT32_MAX);
	ck_assert_uint_eq(native_of(kind, handle), made[nchecked++]);
}

void check_ended(const void *object)
{
	ck_assert_ptr_null(object);
}

void check_text(const char *text)
{
	ck_assert_str_eq(text, TEXT);
}

void check_table(const void *table, uint64_t len)
{
	ck_assert_ptr_nonnull(table);
	ck_assert_ptr_ne(table, mock_table(len));
	ck_assert_mem_eq(table, mock_table(len), len);
}

void check_ret(uint64_t ret, uint64_t expected)
{
	ck_assert_uint_eq(ret, expected);
}

void clean_up(void)
{
	while (nlive > 0)
		free(live[--nlive]);
	mode = (int)(next() % 2);
	shared_memory = NULL;
	/* Somebody may have set one. */
	for (unsigned int i = 0; i < nhandles; i++)
		gantry_call_set_mode(handles[i].handle, 0);
}

/* ---- the way between ---- */

static void *find_mock(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	(void)cookie;
	(void)library;
	for (const struct mock *mock = mocks; mock->name; mock++)
		if (strcmp(mock->name, name) == 0)
			return mock->function;
	return NULL;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie;
	(void)stream;
	return is_device((const void *)(uintptr_t)address);
}

static uint32_t serve(const void *bytes, size_t len, void *stream, void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { tried, NULL };
	const struct gantry_calls_reply *header;
	/* A request may begin at any multiple of 8, behind another for one; a sanitizer sees who reads further. */
	const size_t shift = next() % 2 * 8;
	uint8_t *room = malloc(shift + len + !len), *copy = room + shift;
	struct gantry_pack out;
	uint32_t answered;

	ck_assert_ptr_nonnull(room);
	memcpy(copy, bytes, len);
	if (gantry_calls_table_find(&site.table, sided.kind, sided.handle))
		gantry_calls_table_find(&site.table, sided.kind, sided.handle)->is_hosted = mode ==
											    0;
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES + sizeof(*header));
	is_called = true;
	gantry_calls_serve(&site, libraries, stream, copy, len, &out);
	is_called = false;
	/* As it came it is written down for whoever makes objects anew; of what is hostile addresses are taken out. */
	if (!is_hostile)
		ck_assert_mem_eq(copy, bytes, len);
	header = (const struct gantry_calls_reply *)out.bytes;
	answered = header->state;
	if (reply) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	free(room);
	return answered;
}

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *bytes, size_t len, void *reply,
		 size_t reply_bytes)
{
	(void)cookie;
	(void)library;
	free(request);
	has_waited = route->waits;
	request = malloc(len);
	request_len = len;
	memcpy(request, bytes, len);
	ck_assert_msg(serve(bytes, len, route->stream, reply, reply_bytes) == GANTRY_CALLS_RAN,
		      "%s was refused", tried_name);
	if (bound_handle) {
		ck_assert(route->has_stream);
		ck_assert_ptr_eq(route->stream, gantry_call_get_stream(bound_handle));
	}
	return 0;
}

static int32_t own_device(void *cookie)
{
	(void)cookie;
	return OWN_DEVICE;
}

static int guests_device(void *cookie)
{
	return own_device(cookie);
}

static int guess_device(void *cookie, const void *address)
{
	(void)cookie;
	return is_device(address) ? 1 : address && address == shared_memory ? 2 : 0;
}

static void start(void)
{
	static const struct gantry_call_road road = { .carry = carry,
						      .is_device = guess_device,
						      .device = guests_device };

	site = (struct gantry_calls_site){ .symbol = find_mock,
					   .reaches = reaches,
					   .device = own_device };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
}

static void finish(void)
{
	free(request);
	request = NULL;
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}

static void try_one(const struct attempt *attempt)
{
	tried_name = attempt->name;
	attempt->run();
}

START_TEST(test_every_function_arrives_as_it_was_called)
{
	start();
	for (unsigned int round = 0; round < ROUNDS; round++)
		for (const struct attempt *attempt = attempts; attempt->name; attempt++)
			try_one(attempt);
	finish();
}
END_TEST

/* Changes bytes of a request that was good, or ends it early. */
static size_t mutate(uint8_t *bytes, size_t len)
{
	size_t from = sizeof(struct gantry_calls_request);

	for (unsigned int i = 0; i <= next() % 4 && len > from; i++)
		bytes[from + next() % (len - from)] ^= (uint8_t)(1u << next() % 8);
	if (next() % 4 == 0 && len > from + 8) {
		uint64_t big = next() % 2 ? UINT64_MAX - next() % 16 : next();

		memcpy(bytes + from + next() % (len - from - 7) / 8 * 8, &big, sizeof(big));
	}
	/* No object, no address, no length. */
	if (next() % 4 == 0 && len > from + 8)
		memset(bytes + from + next() % (len - from - 7) / 8 * 8, 0, 8);
	if (next() % 8 == 0) {
		len = from + next() % (len - from + 1) / 8 * 8;
		((struct gantry_calls_request *)bytes)->bytes = len - from;
	}
	return len;
}

/* Changed requests make objects whose numbers the stubs gave to nobody, and would give to others. */
static void forget_objects(void)
{
	gantry_calls_table_fini(&site.table);
	gantry_calls_table_init(&site.table);
	gantry_call_session_began();
	nhandles = 0;
}

START_TEST(test_every_function_refuses_or_bears_what_was_changed)
{
	unsigned int nrefused = 0;

	start();
	for (const struct attempt *attempt = attempts; attempt->name; attempt++) {
		try_one(attempt);
		is_hostile = true;
		for (unsigned int i = 0; i < MUTATIONS; i++) {
			uint8_t *copy = malloc(request_len);
			uint32_t answered;

			memcpy(copy, request, request_len);
			answered = serve(copy, mutate(copy, request_len), some_stream(), NULL, 0);
			ck_assert(answered == GANTRY_CALLS_RAN ||
				  answered == GANTRY_CALLS_REFUSED ||
				  answered == GANTRY_CALLS_UNKNOWN);
			nrefused += answered == GANTRY_CALLS_REFUSED;
			free(copy);
		}
		is_hostile = false;
		forget_objects();
	}
	ck_assert_uint_gt(nrefused, 0);
	finish();
}
END_TEST

/* An address of the device that a library reads on the host ends the worker. */
START_TEST(test_a_scalar_where_the_library_does_not_look_for_it_is_refused)
{
	unsigned int nrefused = 0;

	start();
	for (const struct attempt *attempt = attempts; attempt->name; attempt++) {
		try_one(attempt);
		mode = tried_mode;
		is_hostile = true;
		if (serve(request, request_len, some_stream(), NULL, 0) == GANTRY_CALLS_RAN) {
			mode = !tried_mode;
			nrefused += serve(request, request_len, some_stream(), NULL, 0) ==
				    GANTRY_CALLS_REFUSED;
		}
		is_hostile = false;
	}
	ck_assert(has_modes() ? nrefused > 0 : nrefused == 0);
	finish();
}
END_TEST

static bool waits(const char *name)
{
	for (const struct attempt *attempt = attempts; attempt->name; attempt++)
		if (strcmp(attempt->name, name) == 0)
			try_one(attempt);
	return has_waited;
}

/* Where the library is NCCL. */
int ncclGroupStart(void) __attribute__((weak));
int ncclGroupEnd(void) __attribute__((weak));

/* The library only notes what is asked meanwhile, so it has to be there in order. */
START_TEST(test_calls_of_an_open_group_wait)
{
	if (strcmp(tried->name, "nccl") != 0)
		return;
	start();
	ck_assert(!waits("ncclAllReduce"));
	ck_assert_int_eq(ncclGroupStart(), 0);
	ck_assert(waits("ncclAllReduce"));
	ck_assert_int_eq(ncclGroupEnd(), 0);
	ck_assert(!waits("ncclAllReduce"));
	finish();
}
END_TEST

START_TEST(test_more_than_the_reply_has_room_for_is_refused_before_the_call)
{
	unsigned int nrefused = 0;

	start();
	for (const struct attempt *attempt = attempts; attempt->name; attempt++) {
		try_one(attempt);
		((struct gantry_calls_request *)request)->reply_bytes = 0;
		mode = tried_mode;
		found.len = 0;
		if (serve(request, request_len, some_stream(), NULL, 0) == GANTRY_CALLS_REFUSED) {
			nrefused++;
			ck_assert_uint_eq(found.len, 0);
		}
	}
	ck_assert_uint_gt(nrefused, 0);
	finish();
}
END_TEST

static uint64_t ended[2 * MAX_HANDLES];
static unsigned int nended;

/* Objects are addresses or ints. */
static int end_one(uintptr_t object)
{
	ended[nended++] = (uint32_t)object;
	return 0;
}

static int end_pointed_at(const uint64_t *object)
{
	return end_one(*object);
}

static void *find_ender(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	(void)cookie;
	ck_assert_ptr_eq(library, tried);
	return strcmp(name, "nvrtcDestroyProgram") == 0 ? (void *)end_pointed_at : (void *)end_one;
}

START_TEST(test_what_is_left_is_ended_by_its_library_the_newest_first)
{
	const struct gantry_calls_library *const libraries[] = { tried, NULL };
	unsigned int n = 0;

	start();
	site.symbol = find_ender;
	nended = 0;
	for (unsigned int round = 0; round < 2; round++)
		for (const struct gantry_calls_ender *e = tried->enders; e->name; e++)
			ck_assert_uint_ne(
				gantry_calls_table_add(&site.table, e->kind, NATIVE + n++), 0);
	/* One that ended before, one that is another's, and one that nothing ends. */
	if (n > 2) {
		gantry_calls_table_drop(&site.table, 0x10001);
		gantry_calls_table_find(&site.table, tried->enders[1].kind, 0x10002)->is_lent =
			true;
	}
	ck_assert_uint_ne(gantry_calls_table_add(&site.table, 1, NATIVE + 1000), 0);
	gantry_calls_end(&site, libraries);
	ck_assert_uint_eq(nended, n > 2 ? n - 2 : n);
	for (unsigned int i = 0; i < nended; i++)
		ck_assert_uint_eq(ended[i], NATIVE + n - 1 - i);
	ck_assert_uint_eq(site.table.nobjects, 0);
	finish();
}
END_TEST

START_TEST(test_a_request_that_no_library_knows_is_unknown)
{
	struct gantry_calls_request strange = { .version = GANTRY_CALLS_VERSION, .function = 1 };

	start();
	ck_assert_uint_eq(serve(&strange, sizeof(strange), NULL, NULL, 0), GANTRY_CALLS_UNKNOWN);
	strange.version++;
	ck_assert_uint_eq(serve(&strange, sizeof(strange), NULL, NULL, 0), GANTRY_CALLS_REFUSED);
	strange.version--;
	ck_assert_uint_eq(serve(&strange, sizeof(strange) - 8, NULL, NULL, 0),
			  GANTRY_CALLS_REFUSED);
	strange.bytes = 8;
	ck_assert_uint_eq(serve(&strange, sizeof(strange), NULL, NULL, 0), GANTRY_CALLS_REFUSED);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create(tried->name);
	TCase *tc = gantry_unit_case(suite, "roundtrip");

	tcase_add_test(tc, test_every_function_arrives_as_it_was_called);
	tcase_add_test(tc, test_every_function_refuses_or_bears_what_was_changed);
	tcase_add_test(tc, test_a_scalar_where_the_library_does_not_look_for_it_is_refused);
	tcase_add_test(tc, test_calls_of_an_open_group_wait);
	tcase_add_test(tc, test_more_than_the_reply_has_room_for_is_refused_before_the_call);
	tcase_add_test(tc, test_what_is_left_is_ended_by_its_library_the_newest_first);
	tcase_add_test(tc, test_a_request_that_no_library_knows_is_unknown);
	return gantry_unit_run(suite);
}
