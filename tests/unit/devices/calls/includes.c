/* SPDX-License-Identifier: Apache-2.0 */
/* What a program of NVRTC's includes from folders: found, written with its path, and nothing from elsewhere. */
#include "guest-shim/cudalibs/includes.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/runner.h"

#define MAX_OPTIONS 4

static char top[64];
static struct gantry_includes set;

static char *path_of(const char *name)
{
	static char paths[8][512];
	static unsigned int n;
	char *path = paths[n++ % 8];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
	return path;
}

static void put(const char *name, const char *text)
{
	FILE *file = fopen(path_of(name), "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void setup(void)
{
	static const char *const folders[] = { "one", "one/deep", "two", "two/deep", "other" };

	(void)snprintf(top, sizeof(top), "/tmp/gantry-includes-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		ck_assert_int_eq(mkdir(path_of(folders[i]), 0755), 0);
	set = (struct gantry_includes){ 0 };
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void teardown(void)
{
	gantry_includes_fini(&set);
	ck_assert_int_eq(nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* With -I of folders one and two. */
static int follow(const char *source, const char *const *names, const char *const *headers,
		  uint32_t nheaders)
{
	char one[128], two[128];
	const char *const options[] = { "-std=c++17", one, two };
	const struct gantry_includes_given given = { source, nheaders, headers, names, 3, options };

	(void)snprintf(one, sizeof(one), "-I%s/one", top);
	(void)snprintf(two, sizeof(two), "--include-path=%s/two/../two/", top);
	gantry_includes_fini(&set);
	return gantry_includes_follow(&given, &set);
}

/* %T in @text is the folder. */
static const char *with_top(const char *text)
{
	static char out[4096];
	char *to = out;

	for (; *text; text++)
		if (text[0] == '%' && text[1] == 'T') {
			to = stpcpy(to, top);
			text++;
		} else {
			*to++ = *text;
		}
	*to = '\0';
	return out;
}

static void source_is(const char *text)
{
	ck_assert_str_eq(set.source, with_top(text));
}

/* The only header of that path has that text. */
static void header_is(const char *name, const char *text)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < set.nheaders; i++) {
		if (strcmp(set.names[i], path_of(name)) != 0)
			continue;
		seen++;
		ck_assert_str_eq(set.headers[i], with_top(text));
	}
	ck_assert_uint_eq(seen, 1);
}

START_TEST(test_file_is_found_in_the_folders_order_and_beside_who_includes_it)
{
	put("one/a.h", "#include \"deep/b.h\"\n");
	put("two/a.h", "second\n");
	put("one/deep/b.h", "#include \"c.h\"\n#include <c.h>\n");
	put("one/deep/c.h", "beside\n");
	put("two/c.h", "in a folder\n");
	ck_assert_int_eq(
		follow("x\n# include <a.h> // first\n#include <a.h>\n#include \"none.h\"\n", NULL,
		       NULL, 0),
		1);
	source_is(
		"x\n# include \"%T/one/a.h\" // first\n#include \"%T/one/a.h\"\n#include \"none.h\"\n");
	ck_assert_uint_eq(set.nheaders, 4);
	header_is("one/a.h", "#include \"%T/one/deep/b.h\"\n");
	header_is("one/deep/b.h", "#include \"%T/one/deep/c.h\"\n#include \"%T/two/c.h\"\n");
	header_is("one/deep/c.h", "beside\n");
	header_is("two/c.h", "in a folder\n");
}
END_TEST

START_TEST(test_files_that_include_each_other_come_once)
{
	put("one/a.h", "#pragma once\n#include \"b.h\"\n");
	put("one/b.h", "#pragma once\n#include \"./deep/../a.h\"\n#include \"b.h\"");
	ck_assert_int_eq(follow("#include <a.h>", NULL, NULL, 0), 1);
	ck_assert_uint_eq(set.nheaders, 2);
	header_is("one/b.h", "#pragma once\n#include \"%T/one/a.h\"\n#include \"%T/one/b.h\"");
}
END_TEST

START_TEST(test_header_that_the_program_gave_comes_before_a_file_and_is_looked_through)
{
	const char *const names[] = { "a.h", "given.h" }, *const headers[] = {
		"given\n", "#include <b.h>\n#include \"a.h\"\n"
	};

	put("one/a.h", "file\n");
	put("two/b.h", "b\n");
	ck_assert_int_eq(follow("#include <a.h>\n#include \"given.h\"\n", names, headers, 2), 1);
	source_is("#include <a.h>\n#include \"given.h\"\n");
	ck_assert_uint_eq(set.nheaders, 3);
	ck_assert_str_eq(set.names[0], "a.h");
	ck_assert_str_eq(set.headers[0], "given\n");
	ck_assert_str_eq(set.names[1], "given.h");
	ck_assert_str_eq(set.headers[1], with_top("#include \"%T/two/b.h\"\n#include \"a.h\"\n"));
	/* Where nothing comes from a folder all stays as it was. */
	ck_assert_int_eq(follow("#include <a.h>\n", names, headers, 1), 0);
	ck_assert_ptr_null(set.source);
}
END_TEST

START_TEST(test_next_file_of_a_name_is_looked_for_in_the_folders_behind)
{
	put("one/a.h", "# include_next <a.h>\n");
	put("two/a.h", "#include_next \"a.h\"\n");
	ck_assert_int_eq(follow("#include \"a.h\"\n", NULL, NULL, 0), 1);
	ck_assert_uint_eq(set.nheaders, 2);
	header_is("one/a.h", "# include \"%T/two/a.h\"\n");
	header_is("two/a.h", "#include_next \"a.h\"\n");
}
END_TEST

START_TEST(test_name_that_is_asked_for_is_there_also_through_a_macro)
{
	put("one/a.h", "");
	put("one/b.h", "");
	put("one/c.h", "");
	put("one/d.h", "");
	ck_assert_int_eq(
		follow("#if __has_include(<a.h>) && HAS( <b.h> ) \\\n || HAS(\"c.h\")\nf(\"d.h\");\n"
		       "#elif HAS(<none.h>)\n#define X(y) __has_include(y)\n#endif\n",
		       NULL, NULL, 0),
		1);
	source_is(
		"#if __has_include(\"%T/one/a.h\") && HAS( \"%T/one/b.h\" ) \\\n || HAS(\"%T/one/c.h\")\nf(\"d.h\");\n"
		"#elif HAS(<none.h>)\n#define X(y) __has_include(y)\n#endif\n");
	ck_assert_uint_eq(set.nheaders, 3);
}
END_TEST

START_TEST(test_what_is_no_directive_stays_as_it_is)
{
	static const char source[] =
		"// #include <a.h>\n// goes on \\\n#include <a.h>\n/* \n#include <a.h>\n*/\n"
		"const char *s = \"\\\"\\\n#include <a.h>\", *r = R\"x(\n#include <a.h>\n)\" )x\";\n"
		"char q = '\"', n = '\\''; long l = 1'000'000;\n"
		"x #include <a.h>\n#includes <a.h>\n#include <a.h\n#include \"a.h>\n#include NAME\n#include <>\n"
		"#define include <a.h>\n#";

	put("one/a.h", "");
	ck_assert_int_eq(follow(source, NULL, NULL, 0), 0);
	ck_assert_int_eq(follow("/**/ #include <a.h>\n/* */\t#\tinclude\t<a.h>/*", NULL, NULL, 0),
			 1);
	source_is("/**/ #include \"%T/one/a.h\"\n/* */\t#\tinclude\t\"%T/one/a.h\"/*");
}
END_TEST

/* A header of that name is there, and includes that file. */
static void alias_is(const char *name, const char *file)
{
	char text[256];
	uint32_t seen = 0;

	(void)snprintf(text, sizeof(text), "#include \"%s\"\n", path_of(file));
	for (uint32_t i = 0; i < set.nheaders; i++)
		if (strcmp(set.names[i], name) == 0) {
			seen++;
			ck_assert_str_eq(set.headers[i], text);
		}
	ck_assert_uint_eq(seen, 1);
}

/* As Thrust has it: which is meant is said in a file that is included before. */
START_TEST(test_name_that_a_macro_makes_is_found_wherever_the_macro_is_defined)
{
	put("one/root.h", "# define SYSTEM deep\n#define ROOT SYSTEM // of these\n");
	put("one/a.h", "#include <root.h>\n#define HEADER <ROOT/b.h>\n#include HEADER\n");
	put("one/deep/b.h", "#include \"c.h\"\n");
	put("one/deep/c.h", "");
	ck_assert_int_eq(follow("#include <a.h>\n", NULL, NULL, 0), 1);
	ck_assert_uint_eq(set.nheaders, 5);
	header_is("one/a.h",
		  "#include \"%T/one/root.h\"\n#define HEADER <ROOT/b.h>\n#include HEADER\n");
	alias_is("deep/b.h", "one/deep/b.h");
	header_is("one/deep/b.h", "#include \"%T/one/deep/c.h\"\n");
}
END_TEST

/* Whoever writes the name itself means what he would mean without the macro. */
START_TEST(test_name_that_a_macro_makes_too_is_a_file_s_own_where_it_is_written)
{
	put("one/config.h", "");
	put("one/deep/config.h", "");
	put("one/deep/impl.h", "#include \"config.h\"\n");
	ck_assert_int_eq(follow("#define CONFIG \"config.h\"\n#define IMPL <deep/impl.h>\n"
				"#include CONFIG\n#include IMPL\n",
				NULL, NULL, 0),
			 1);
	alias_is("config.h", "one/config.h");
	header_is("one/deep/impl.h", "#include \"%T/one/deep/config.h\"\n");
}
END_TEST

/* Conditions are not looked at. */
START_TEST(test_each_file_that_a_macro_may_mean_goes_along)
{
	static const char source[] =
		"#ifdef A\n#define HEADER <a.h>\n#elif defined(B)\n#define HEADER \\\n \"b.h\" /* that */\n"
		"#else\n#define HEADER <c.h>\n#endif\n#include HEADER // one\n";

	put("one/a.h", "#define LATER <d.h>\n");
	put("two/b.h", "#if __has_include( LATER )\n#endif\n");
	put("two/d.h", "");
	ck_assert_int_eq(follow(source, NULL, NULL, 0), 1);
	source_is(source);
	ck_assert_uint_eq(set.nheaders, 6);
	alias_is("a.h", "one/a.h");
	alias_is("b.h", "two/b.h");
	alias_is("d.h", "two/d.h");
}
END_TEST

START_TEST(test_name_that_an_option_s_macro_makes_is_found)
{
	char folder[128];
	const char *const options[] = { folder, "-DHEADER=<DIR/b.h>", "--define-macro",
					"DIR=deep" };
	const struct gantry_includes_given given = { "#include HEADER\n", 0,	  NULL, NULL,
						     MAX_OPTIONS,	  options };

	put("one/deep/b.h", "");
	(void)snprintf(folder, sizeof(folder), "-I%s/one", top);
	ck_assert_int_eq(gantry_includes_follow(&given, &set), 1);
	alias_is("deep/b.h", "one/deep/b.h");
}
END_TEST

START_TEST(test_name_that_a_macro_makes_and_the_program_gave_is_the_program_s)
{
	const char *const names[] = { "a.h" }, *const headers[] = { "given\n" };

	put("one/a.h", "file\n");
	ck_assert_int_eq(follow("#define HEADER <a.h>\n#include HEADER\n", names, headers, 1), 0);
}
END_TEST

/* As headers have them that are made for several systems. */
START_TEST(test_name_that_a_macro_with_parameters_makes_is_found)
{
	static const char source[] =
		"#define STR(x) #x\n#define NAME( what ) STR(what)\n#define DIR deep\n"
		"#include NAME( DIR/a.h ) // one\n"
		"#define OF(dir, ...) <dir/__VA_ARGS__>\n#define HEADER OF(deep, b.h)\n#include HEADER\n"
		"#define CAT(a, b) a ## b\n#define GLUE(a, b) CAT(a, b)\n#define C c\n"
		"#if __has_include(OF(deep, GLUE(C, 1.h)))\n#endif\n#define NONE() <deep/d.h>\n#include NONE ()\n";

	put("one/deep/a.h", "");
	put("one/deep/b.h", "");
	put("one/deep/c1.h", "");
	put("one/deep/d.h", "");
	ck_assert_int_eq(follow(source, NULL, NULL, 0), 1);
	source_is(source);
	ck_assert_uint_eq(set.nheaders, 8);
	alias_is("deep/a.h", "one/deep/a.h");
	alias_is("deep/b.h", "one/deep/b.h");
	alias_is("deep/c1.h", "one/deep/c1.h");
	alias_is("deep/d.h", "one/deep/d.h");
}
END_TEST

/* An argument is what it is written as where it is made a text or a part of a word, and what its macros say elsewhere. */
START_TEST(test_argument_is_taken_as_written_where_it_becomes_a_text_or_a_part)
{
	put("one/DIR.h", "");
	put("one/deepDIR.h", "");
	put("one/other.h", "");
	ck_assert_int_eq(follow("#define DIR other\n#define STR(x) #x\n#include STR(DIR.h)\n"
				"#define GLUE(a, b) <a##b.h>\n#include GLUE(deep, DIR)\n",
				NULL, NULL, 0),
			 1);
	ck_assert_uint_eq(set.nheaders, 4);
	alias_is("DIR.h", "one/DIR.h");
	alias_is("deepDIR.h", "one/deepDIR.h");
}
END_TEST

/* Each of its definitions, with each that its arguments may become. */
START_TEST(test_each_file_that_a_macro_with_parameters_may_mean_goes_along)
{
	put("one/a.h", "");
	put("one/deep/a.h", "");
	put("two/b.h", "");
	ck_assert_int_eq(
		follow("#if X\n#define OF(x) <x.h>\n#define WHICH a\n#else\n#define OF(x) <deep/x.h>\n"
		       "#define WHICH b\n#endif\n#include OF(WHICH)\n",
		       NULL, NULL, 0),
		1);
	ck_assert_uint_eq(set.nheaders, 6);
	alias_is("a.h", "one/a.h");
	alias_is("deep/a.h", "one/deep/a.h");
	alias_is("b.h", "two/b.h");
}
END_TEST

/* Too few, too many, none, no end, or of itself without one. */
START_TEST(test_macros_with_other_arguments_make_no_name)
{
	char source[8192], *at = source;

	put("one/a.h", "");
	ck_assert_int_eq(
		follow("#define A(x) <x>\n#include A\n#include A(a.h\n#include A(a.h, 1)\n#include A()\n"
		       "#define B(x, y) <x>\n#include B(a.h)\n#define C(x) C(x)\n#include C(a.h)\n"
		       "#define D(a, b, c, d, e, f, g, h, i) <a.h>\n#include D(1,2,3,4,5,6,7,8,9)\n"
		       "#define E(x <x>\n#include E(a.h)\n#define F(<) <a.h>\n#include F(1)\n#include A)a.h(\n",
		       NULL, NULL, 0),
		0);
	/* What would have no end in sight. */
	for (int i = 0; i < 12; i++)
		at += sprintf(at, "#define M%d(x, y) M%d(x/y/M%d(y, x), M%d(x, x))\n", i, i + 1,
			      i + 1, i + 1);
	(void)sprintf(
		at,
		"#define M12(x, y) x/y\n#define N(x) <x>\n#include N(M0(a, b))\n#include <a.h>\n");
	ck_assert_int_eq(follow(source, NULL, NULL, 0), 1);
	ck_assert_uint_eq(set.nheaders, 1);
}
END_TEST

/* Of itself, of each other, of what is no name, or of more than there is an end of. */
START_TEST(test_macros_that_make_no_name_are_left)
{
	char source[8192], *at = source;

	put("one/a.h", "");
	put("other/b.h", "");
	ck_assert_int_eq(follow("#define A A\n#include A\n#define B C\n#define C B\n#include C\n"
				"#include NONE\n#define E < a.h>\n"
				"#include E\n#define F <../other/b.h>\n#include F\n#define G <a.h\n"
				"#include G\n#define H\n#include H\n",
				NULL, NULL, 0),
			 0);
	for (int i = 0; i < 12; i++)
		for (int j = 0; j < 8; j++)
			at += sprintf(at, "#define M%d M%d/M%d/%d\n", i, i + 1, i + 1, j);
	(void)sprintf(at, "#define N <M0>\n#include N\n#include <a.h>\n");
	ck_assert_int_eq(follow(source, NULL, NULL, 0), 1);
	ck_assert_uint_eq(set.nheaders, 1);
}
END_TEST

START_TEST(test_nothing_outside_the_folders_is_read)
{
	char absolute[256];

	put("other/secret.h", "secret\n");
	put("one/ok.h",
	    "#include \"../other/secret.h\"\n#include \"../one/deep/x.h\"\n#include \"../two/y.h\"\n");
	put("one/deep/x.h", "#include \"../../other/secret.h\"\n#include </etc/passwd>\n");
	put("two/y.h", "");
	put("one-more", "");
	(void)snprintf(absolute, sizeof(absolute),
		       "#include \"%s/other/secret.h\"\n#include <../one-more>\n#include <ok.h>\n",
		       top);
	ck_assert_int_eq(follow(absolute, NULL, NULL, 0), 1);
	source_is(
		"#include \"%T/other/secret.h\"\n#include <../one-more>\n#include \"%T/one/ok.h\"\n");
	ck_assert_uint_eq(set.nheaders, 3);
	header_is(
		"one/ok.h",
		"#include \"../other/secret.h\"\n#include \"%T/one/deep/x.h\"\n#include \"%T/two/y.h\"\n");
	header_is("one/deep/x.h", "#include \"../../other/secret.h\"\n#include </etc/passwd>\n");
	/* By its whole name it may be asked for where it is inside; a link is part of its folder. */
	(void)snprintf(absolute, sizeof(absolute), "#include <%s/two/y.h>\n#include <link.h>\n",
		       top);
	ck_assert_int_eq(symlink("../other/secret.h", path_of("one/link.h")), 0);
	ck_assert_int_eq(follow(absolute, NULL, NULL, 0), 1);
	header_is("one/link.h", "secret\n");
	header_is("two/y.h", "");
}
END_TEST

START_TEST(test_what_is_no_text_is_not_sent)
{
	FILE *file = fopen(path_of("one/binary.h"), "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite("a\0b", 1, 3, file), 3);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(mkfifo(path_of("one/fifo.h"), 0644), 0); /* nobody ever writes */
	ck_assert_int_eq(follow("#include <binary.h>\n#include <fifo.h>\n#include <deep>\n", NULL,
				NULL, 0),
			 0);
}
END_TEST

START_TEST(test_no_more_files_are_sent_than_may_be)
{
	char *source = calloc(1, 64 * (GANTRY_INCLUDES_MAX_FILES + 2)), *at = source;
	char last[128];

	ck_assert_ptr_nonnull(source);
	for (uint32_t i = 0; i < GANTRY_INCLUDES_MAX_FILES + 2; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "one/%u.h", i);
		put(name, "");
		at += sprintf(at, "#include <%u.h>\n", i);
	}
	ck_assert_int_eq(follow(source, NULL, NULL, 0), 1);
	ck_assert_uint_eq(set.nheaders, GANTRY_INCLUDES_MAX_FILES);
	(void)snprintf(last, sizeof(last), "\n#include <%u.h>\n#include <%u.h>\n",
		       GANTRY_INCLUDES_MAX_FILES, GANTRY_INCLUDES_MAX_FILES + 1);
	ck_assert_ptr_nonnull(strstr(set.source, last));
	free(source);
}
END_TEST

START_TEST(test_no_more_bytes_are_sent_than_may_be)
{
	char *text = malloc(GANTRY_INCLUDES_MAX_BYTES / 2 + 2);

	ck_assert_ptr_nonnull(text);
	memset(text, ' ', GANTRY_INCLUDES_MAX_BYTES / 2 + 1);
	text[GANTRY_INCLUDES_MAX_BYTES / 2 + 1] = '\0';
	put("one/a.h", text);
	put("one/b.h", text);
	put("one/c.h", "small\n");
	free(text);
	ck_assert_int_eq(follow("#include <a.h>\n#include <b.h>\n#include <c.h>\n", NULL, NULL, 0),
			 1);
	source_is("#include \"%T/one/a.h\"\n#include <b.h>\n#include \"%T/one/c.h\"\n");
	ck_assert_uint_eq(set.nheaders, 2);
}
END_TEST

/* What is found of "a.h" with these options, or nothing. */
static int found(const char *first, const char *second)
{
	char texts[2][256];
	const char *const options[] = { texts[0], texts[1] };
	const struct gantry_includes_given given = { "#include <a.h>\n", 0,	 NULL, NULL,
						     second ? 2 : 1,	 options };

	(void)snprintf(texts[0], sizeof(texts[0]), "%s", with_top(first));
	(void)snprintf(texts[1], sizeof(texts[1]), "%s", second ? with_top(second) : "");
	gantry_includes_fini(&set);
	return gantry_includes_follow(&given, &set);
}

START_TEST(test_folders_are_named_as_nvrtc_has_them)
{
	put("one/a.h", "");
	ck_assert_int_eq(found("-I%T/one", NULL), 1);
	ck_assert_int_eq(found("-I=%T/one", NULL), 1);
	ck_assert_int_eq(found("-I %T/one", NULL), 1);
	ck_assert_int_eq(found("-I", "%T/one"), 1);
	ck_assert_int_eq(found("--include-path=%T/one", NULL), 1);
	ck_assert_int_eq(found("--include-path", "%T/one"), 1);
	ck_assert_int_eq(found("-I", NULL), 0);
	ck_assert_int_eq(found("-I", ""), 0);
	ck_assert_int_eq(found("-I%T/none", NULL), 0);
	ck_assert_int_eq(found("--include-paths=%T/one", NULL), 0);
	ck_assert_int_eq(found("-isystem", "%T/one"), 0); /* NVRTC knows no such option */
	ck_assert_int_eq(chdir(top), 0);
	ck_assert_int_eq(found("-Ione", NULL), 1);
	ck_assert_int_eq(found("-I./two/../one/.", NULL), 1);
	source_is("#include \"%T/one/a.h\"\n");
	ck_assert_int_eq(found("-I..", NULL), 0);
	ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

static void before_the_source(const char *first, const char *second, const char *is)
{
	char folder[128];
	const char *const options[] = { folder, first, second, "-lineinfo" };
	const struct gantry_includes_given given = {
		"source", 0, NULL, NULL, MAX_OPTIONS, options
	};

	(void)snprintf(folder, sizeof(folder), "-I%s/one", top);
	gantry_includes_fini(&set);
	ck_assert_int_eq(gantry_includes_follow(&given, &set), 1);
	ck_assert_str_eq(set.source, "source");
	ck_assert_str_eq(set.options[0], folder);
	ck_assert_str_eq(set.options[1], strcmp(second, "a.h") == 0 ? first : with_top(is));
	ck_assert_str_eq(set.options[2], strcmp(second, "a.h") == 0 ? with_top(is) : second);
	ck_assert_str_eq(set.options[3], "-lineinfo");
	header_is("one/a.h", "#include \"%T/one/b.h\"\n");
	header_is("one/b.h", "");
}

START_TEST(test_file_that_an_option_puts_before_the_source_goes_along)
{
	put("one/a.h", "#include <b.h>\n");
	put("one/b.h", "");
	before_the_source("--pre-include=a.h", "-G", "--pre-include=%T/one/a.h");
	before_the_source("-include=a.h", "-G", "-include=%T/one/a.h");
	before_the_source("--pre-include", "a.h", "%T/one/a.h");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("includes");
	TCase *tc = gantry_unit_case(suite, "includes");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_file_is_found_in_the_folders_order_and_beside_who_includes_it);
	tcase_add_test(tc, test_files_that_include_each_other_come_once);
	tcase_add_test(tc,
		       test_header_that_the_program_gave_comes_before_a_file_and_is_looked_through);
	tcase_add_test(tc, test_next_file_of_a_name_is_looked_for_in_the_folders_behind);
	tcase_add_test(tc, test_name_that_is_asked_for_is_there_also_through_a_macro);
	tcase_add_test(tc, test_what_is_no_directive_stays_as_it_is);
	tcase_add_test(tc, test_name_that_a_macro_makes_is_found_wherever_the_macro_is_defined);
	tcase_add_test(tc, test_name_that_a_macro_makes_too_is_a_file_s_own_where_it_is_written);
	tcase_add_test(tc, test_each_file_that_a_macro_may_mean_goes_along);
	tcase_add_test(tc, test_name_that_an_option_s_macro_makes_is_found);
	tcase_add_test(tc, test_name_that_a_macro_makes_and_the_program_gave_is_the_program_s);
	tcase_add_test(tc, test_name_that_a_macro_with_parameters_makes_is_found);
	tcase_add_test(tc, test_argument_is_taken_as_written_where_it_becomes_a_text_or_a_part);
	tcase_add_test(tc, test_each_file_that_a_macro_with_parameters_may_mean_goes_along);
	tcase_add_test(tc, test_macros_with_other_arguments_make_no_name);
	tcase_add_test(tc, test_macros_that_make_no_name_are_left);
	tcase_add_test(tc, test_nothing_outside_the_folders_is_read);
	tcase_add_test(tc, test_what_is_no_text_is_not_sent);
	tcase_add_test(tc, test_no_more_files_are_sent_than_may_be);
	tcase_add_test(tc, test_no_more_bytes_are_sent_than_may_be);
	tcase_add_test(tc, test_folders_are_named_as_nvrtc_has_them);
	tcase_add_test(tc, test_file_that_an_option_puts_before_the_source_goes_along);
	return gantry_unit_run(suite);
}
