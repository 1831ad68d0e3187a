/* SPDX-License-Identifier: Apache-2.0 */
#include "parse.h"

#include <getopt.h>
#include <string.h>

#include "base/bytes.h"
#include "host-agent/ctl/verbs.h"

#define NGLOBALS      16
#define NOPTIONS      (NGLOBALS + GANTRY_CTL_OPTIONS_MAX + 1)
#define FIRST_VERB_ID 1000
#define FIRST_ID      500

/* Which words to print help about, kept for gantry_ctl_help(): ends with NULL. */
static char *help_args[3];

static int use_global(struct gantry_ctl *ctl, int idx, const char *value, bool *ret_help)
{
	const char *name = gantry_global_options[idx].name;
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t ns;

	if (strcmp(name, "socket") == 0)
		ctl->socket_path = value;
	else if (strcmp(name, "json") == 0)
		ctl->json = true;
	else if (strcmp(name, "no-headings") == 0)
		ctl->headings = false;
	else if (strcmp(name, "bytes") == 0)
		ctl->raw_bytes = true;
	else if (strcmp(name, "help") == 0)
		*ret_help = true;
	else if (gantry_duration_parse(value, &ns, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--timeout: %s; write it as 500ms or 10s", err.text);
	else {
		ctl->timeout_ns = (int64_t)(ns > INT64_MAX ? INT64_MAX : ns);
		ctl->timeout_given = true;
	}
	return 0;
}

static void add_options(struct option *options, size_t *n, const struct gantry_verb_option *from,
			int first_id)
{
	for (int i = 0; from && from[i].name; i++)
		options[(*n)++] = (struct option){
			.name = from[i].name,
			.has_arg = from[i].metavar ? required_argument : no_argument,
			.val = first_id + i,
		};
}

/*
 * Options from argv[*@at] on: globals, and those of @verb when there is one. *@at is then the first word that is
 * none. @anywhere: words in between are moved behind the options.
 */
static int parse_options(struct gantry_ctl *ctl, int argc, char **argv, int *at,
			 const struct gantry_verb *verb, bool anywhere, bool *ret_help)
{
	struct option options[NOPTIONS] = { 0 };
	size_t n = 0;
	int c;

	add_options(options, &n, gantry_global_options, FIRST_ID);
	if (verb)
		add_options(options, &n, verb->options, FIRST_VERB_ID);

	/* getopt takes the word before the first for the program's name. */
	argc -= *at - 1;
	argv += *at - 1;
	optind = 0; /* GNU: start afresh */
	opterr = 0;
	while ((c = getopt_long(argc, argv, anywhere ? ":h" : "+:h", options, NULL)) >= 0) {
		int r = 0;

		if (c == ':')
			return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
					       "option %s wants a value; see gantryctl help",
					       argv[optind - 1]);
		if (c == '?')
			return gantry_ctl_fail(
				ctl, GANTRY_CTL_USAGE,
				"no option %s here, or it takes no value; see gantryctl%s%s%s%s --help",
				argv[optind - 1], verb ? " " : "", verb ? verb->noun : "",
				verb && verb->verb ? " " : "",
				verb && verb->verb ? verb->verb : "");
		if (c == 'h')
			*ret_help = true;
		else if (c >= FIRST_VERB_ID)
			ctl->values[c - FIRST_VERB_ID] = optarg ? optarg : "";
		else if (c >= FIRST_ID)
			r = use_global(ctl, c - FIRST_ID, optarg, ret_help);
		if (r)
			return r;
	}
	*at += optind - 1;
	return 0;
}

static int choose_help(struct gantry_ctl *ctl, char *noun, char *verb)
{
	int words;

	ctl->verb = gantry_verb_find("help", NULL, &words);
	memset(ctl->values, 0, sizeof(ctl->values));
	help_args[0] = noun;
	help_args[1] = noun ? verb : NULL;
	ctl->args = help_args;
	ctl->nargs = noun ? (verb ? 2 : 1) : 0;
	return 0;
}

static int check_nargs(struct gantry_ctl *ctl)
{
	const struct gantry_verb *verb = ctl->verb;
	char name[64];

	gantry_verb_name(verb, name, sizeof(name));
	if (ctl->nargs < verb->min_args)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "%s wants %s; usage: gantryctl %s %s",
				       name, verb->args, name, verb->args);
	if (verb->max_args >= 0 && ctl->nargs > verb->max_args)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "%s: unexpected \"%s\"; usage: gantryctl %s%s%s", name,
				       ctl->args[verb->max_args], name, *verb->args ? " " : "",
				       verb->args);
	return 0;
}

int gantry_ctl_parse(struct gantry_ctl *ctl, int argc, char **argv)
{
	bool help = false;
	char *noun, *verb = NULL;
	int at = 1, words, r;

	ctl->argv = argv;
	r = parse_options(ctl, argc, argv, &at, NULL, false, &help);
	if (r)
		return r;
	if (at >= argc) {
		if (help)
			return choose_help(ctl, NULL, NULL);
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "what shall it do? see gantryctl help");
	}
	noun = argv[at++];
	if (!gantry_noun_known(noun))
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "there is no \"%s\"; see gantryctl help", noun);
	ctl->verb = gantry_verb_find(noun, NULL, &words);
	if (!ctl->verb) {
		r = parse_options(ctl, argc, argv, &at, NULL, false, &help);
		if (r)
			return r;
		verb = at < argc ? argv[at] : NULL;
		ctl->verb = gantry_verb_find(noun, verb, &words);
		if (!ctl->verb && help)
			return choose_help(ctl, noun, NULL);
		if (!ctl->verb)
			return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
					       "%s: %s%s%s; see gantryctl help %s", noun,
					       verb ? "there is no \"" : "it wants a verb",
					       verb ? verb : "", verb ? "\"" : "", noun);
		at++;
	}
	r = parse_options(ctl, argc, argv, &at, ctl->verb, !ctl->verb->command, &help);
	if (r)
		return r;
	if (help)
		return choose_help(ctl, noun, verb);
	ctl->args = argv + at;
	ctl->nargs = argc - at;
	return check_nargs(ctl);
}

int gantry_ctl_main(int argc, char **argv, int (*run)(struct gantry_ctl *ctl))
{
	struct gantry_ctl ctl;
	int code;

	gantry_ctl_init(&ctl);
	code = gantry_ctl_parse(&ctl, argc, argv);
	if (code == 0)
		code = run(&ctl);
	if ((fflush(ctl.out) != 0 || ferror(ctl.out)) && code == 0)
		code = gantry_ctl_fail(&ctl, GANTRY_CTL_FAILED, "the output could not be written");
	gantry_ctl_fini(&ctl);
	return code;
}
