/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the table of verbs for a reader: help, the man page's list, completion. */
#include <inttypes.h>
#include <string.h>

#include "host-agent/ctl/context.h"
#include "host-agent/ctl/verbs.h"

#define NAME_MAX_BYTES 64

/* The whole left side, "tenant set TENANT". */
static void usage_of(const struct gantry_verb *verb, char *buf, size_t cap)
{
	char name[NAME_MAX_BYTES];

	gantry_verb_name(verb, name, sizeof(name));
	(void)snprintf(buf, cap, "%s%s%s", name, *verb->args ? " " : "", verb->args);
}

static void print_options(FILE *out, const struct gantry_verb_option *options)
{
	char left[NAME_MAX_BYTES];

	for (; options && options->name; options++) {
		(void)snprintf(left, sizeof(left), "--%s%s%s", options->name,
			       options->metavar ? " " : "",
			       options->metavar ? options->metavar : "");
		fprintf(out, "  %-26s  %s\n", left, options->help);
	}
}

static void print_verb(FILE *out, const struct gantry_verb *verb)
{
	char usage[128];

	usage_of(verb, usage, sizeof(usage));
	fprintf(out, "usage: gantryctl [OPTION...] %s\n\n%s\n", usage, verb->summary);
	if (verb->detail)
		fprintf(out, "%s\n", verb->detail);
	if (verb->options) {
		fprintf(out, "\n");
		print_options(out, verb->options);
	}
	fprintf(out, "\nOptions of every verb:\n");
	print_options(out, gantry_global_options);
}

/* Verbs of @noun, or all. Returns how many. */
static int print_verbs(FILE *out, const char *noun)
{
	char usage[128];
	int n = 0;

	for (size_t i = 0; i < gantry_nverbs; i++) {
		const struct gantry_verb *verb = &gantry_verbs[i];

		if (verb->hidden || (noun && strcmp(verb->noun, noun) != 0))
			continue;
		usage_of(verb, usage, sizeof(usage));
		fprintf(out, "  %-30s  %s\n", usage, verb->summary);
		n++;
	}
	return n;
}

static void print_all(FILE *out)
{
	fprintf(out,
		"usage: gantryctl [OPTION...] NOUN [VERB] [ARGUMENT...]\n\n"
		"Administer the accelerators of this host and the tenants that share them.\n\n");
	print_verbs(out, NULL);
	fprintf(out, "\nOptions of every verb:\n");
	print_options(out, gantry_global_options);
	fprintf(out,
		"\nExit status: 0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 agent unreachable, 6 quota,\n"
		"7 busy, 8 unsupported, 124 timeout. See also: gantryctl help NOUN [VERB], man gantryctl.\n");
}

/* scdoc reads these as markup. */
static void print_scdoc_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("\\*_[]<>#", *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void print_scdoc_options(FILE *out, const struct gantry_verb_option *options,
				const char *indent)
{
	for (; options && options->name; options++) {
		fprintf(out, "%s*--%s*", indent, options->name);
		if (options->metavar) {
			fprintf(out, " _");
			print_scdoc_text(out, options->metavar);
			fprintf(out, "_");
		}
		fprintf(out, "\n%s\t", indent);
		print_scdoc_text(out, options->help);
		fprintf(out, "\n\n");
	}
}

static void print_scdoc(FILE *out)
{
	char name[NAME_MAX_BYTES];

	fprintf(out, "# OPTIONS\n\n");
	print_scdoc_options(out, gantry_global_options, "");
	fprintf(out, "# VERBS\n\n");
	for (size_t i = 0; i < gantry_nverbs; i++) {
		const struct gantry_verb *verb = &gantry_verbs[i];

		if (verb->hidden)
			continue;
		gantry_verb_name(verb, name, sizeof(name));
		fprintf(out, "*%s*", name);
		if (*verb->args) {
			fputc(' ', out);
			print_scdoc_text(out, verb->args);
		}
		fprintf(out, "\n\t");
		print_scdoc_text(out, verb->summary);
		fprintf(out, ".");
		if (verb->detail) {
			fprintf(out, " ");
			print_scdoc_text(out, verb->detail);
		}
		fprintf(out, "\n\n");
		print_scdoc_options(out, verb->options, "\t");
	}
}

/* The same as JSON, for tools that make their own help. */
static int print_json(struct gantry_ctl *ctl)
{
	json_object *object = gantry_ctl_json_new();
	json_object *verbs = json_object_new_array();

	for (size_t i = 0; i < gantry_nverbs; i++) {
		const struct gantry_verb *verb = &gantry_verbs[i];
		json_object *entry, *options;
		char name[NAME_MAX_BYTES];

		if (verb->hidden)
			continue;
		entry = json_object_new_object();
		options = json_object_new_array();
		gantry_verb_name(verb, name, sizeof(name));
		json_object_object_add(entry, "name", json_object_new_string(name));
		json_object_object_add(entry, "args", json_object_new_string(verb->args));
		json_object_object_add(entry, "summary", json_object_new_string(verb->summary));
		for (int o = 0; verb->options && verb->options[o].name; o++)
			json_object_array_add(options,
					      json_object_new_string(verb->options[o].name));
		json_object_object_add(entry, "options", options);
		json_object_array_add(verbs, entry);
	}
	json_object_object_add(object, "verbs", verbs);
	return gantry_ctl_json_print(ctl, object);
}

int gantry_ctl_help(struct gantry_ctl *ctl)
{
	const struct gantry_verb *verb;
	int words;

	if (ctl->json)
		return print_json(ctl);
	if (gantry_ctl_option(ctl, "scdoc")) {
		print_scdoc(ctl->out);
		return 0;
	}
	if (ctl->nargs == 0) {
		print_all(ctl->out);
		return 0;
	}
	verb = gantry_verb_find(ctl->args[0], ctl->nargs > 1 ? ctl->args[1] : NULL, &words);
	if (verb) {
		print_verb(ctl->out, verb);
		return 0;
	}
	if (ctl->nargs > 1 || !gantry_noun_known(ctl->args[0]))
		return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
				       "there is no \"%s%s%s\"; see gantryctl help", ctl->args[0],
				       ctl->nargs > 1 ? " " : "",
				       ctl->nargs > 1 ? ctl->args[1] : "");
	print_verbs(ctl->out, ctl->args[0]);
	return 0;
}

int gantry_ctl_completion(struct gantry_ctl *ctl)
{
	if (strcmp(ctl->args[0], "bash") != 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_UNSUPPORTED,
				       "no completion for %s, only for bash", ctl->args[0]);
	/* The words come from "gantryctl complete", so that this script never grows old. */
	fprintf(ctl->out,
		"# bash completion for gantryctl\n"
		"_gantryctl() {\n"
		"\tlocal IFS=$'\\n'\n"
		"\tCOMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" complete -- "
		"\"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
		"}\n"
		"complete -o default -F _gantryctl gantryctl\n");
	return 0;
}

/* --- complete --- */

static void complete_options(FILE *out, const struct gantry_verb_option *options)
{
	for (; options && options->name; options++)
		fprintf(out, "--%s\n", options->name);
}

static void complete_nouns(FILE *out)
{
	for (size_t i = 0; i < gantry_nverbs; i++)
		if (!gantry_verbs[i].hidden &&
		    (i == 0 || strcmp(gantry_verbs[i].noun, gantry_verbs[i - 1].noun) != 0))
			fprintf(out, "%s\n", gantry_verbs[i].noun);
}

static void complete_verbs(FILE *out, const char *noun)
{
	for (size_t i = 0; i < gantry_nverbs; i++)
		if (gantry_verbs[i].verb && strcmp(gantry_verbs[i].noun, noun) == 0)
			fprintf(out, "%s\n", gantry_verbs[i].verb);
}

static void complete_objects(struct gantry_ctl *ctl, enum gantry_words words)
{
	Gantry__Admin__SessionFilter filter = GANTRY__ADMIN__SESSION_FILTER__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;

	if (words == GANTRY_WORDS_DEVICE) {
		request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DEVICE_LIST;
		request.device_list = &empty;
	} else if (words == GANTRY_WORDS_TENANT) {
		request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_LIST;
		request.tenant_list = &empty;
	} else if (words == GANTRY_WORDS_POLICY) {
		request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_POLICY_LIST;
		request.policy_list = &empty;
	} else if (words == GANTRY_WORDS_SESSION) {
		request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_SESSION_LIST;
		request.session_list = &filter;
	} else {
		request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_QUEUE_LIST;
		request.queue_list = &filter;
	}
	/* A failure is nobody's concern: somebody only pressed the tab key. */
	if (gantry_ctl_ask_quietly(ctl, &request, &reply, NULL) < 0)
		return;
	switch (reply->body_case) {
	case GANTRY__ADMIN__ADMIN_REPLY__BODY_DEVICES:
		for (size_t i = 0; i < reply->devices->n_devices; i++)
			fprintf(ctl->out, "%s\n", reply->devices->devices[i]->name);
		break;
	case GANTRY__ADMIN__ADMIN_REPLY__BODY_POLICIES:
		for (size_t i = 0; i < reply->policies->n_policies; i++)
			fprintf(ctl->out, "%s\n", reply->policies->policies[i]->name);
		break;
	case GANTRY__ADMIN__ADMIN_REPLY__BODY_TENANTS:
		for (size_t i = 0; i < reply->tenants->n_tenants; i++)
			if (reply->tenants->tenants[i]->config)
				fprintf(ctl->out, "%s\n", reply->tenants->tenants[i]->config->name);
		break;
	case GANTRY__ADMIN__ADMIN_REPLY__BODY_SESSIONS:
		for (size_t i = 0; i < reply->sessions->n_sessions; i++)
			fprintf(ctl->out, "%" PRIu64 "\n",
				reply->sessions->sessions[i]->session_id);
		break;
	case GANTRY__ADMIN__ADMIN_REPLY__BODY_QUEUES:
		for (size_t i = 0; i < reply->queues->n_queues; i++)
			fprintf(ctl->out, "%" PRIu64 ":%u\n", reply->queues->queues[i]->session_id,
				reply->queues->queues[i]->slot);
		break;
	default:
		break;
	}
}

static void complete_words(struct gantry_ctl *ctl, enum gantry_words words)
{
	switch (words) {
	case GANTRY_WORDS_NONE:
	case GANTRY_WORDS_FILE: /* bash does these itself when we are silent */
		break;
	case GANTRY_WORDS_SHELL:
		fprintf(ctl->out, "bash\n");
		break;
	case GANTRY_WORDS_ENGINE:
		fprintf(ctl->out, "podman\ndocker\nrunc\n");
		break;
	case GANTRY_WORDS_TRANSPORT:
		fprintf(ctl->out, "ivshmem\nvsock\n");
		break;
	case GANTRY_WORDS_VM_FORMAT:
		fprintf(ctl->out, "qemu\nlibvirt\nproxmox\n");
		break;
	case GANTRY_WORDS_RECIPES:
		fprintf(ctl->out, "moves\nalways\nno\n");
		break;
	case GANTRY_WORDS_NOUN:
		complete_nouns(ctl->out);
		break;
	default:
		complete_objects(ctl, words);
	}
}

static const struct gantry_verb_option *find_option(const struct gantry_verb_option *options,
						    const char *word)
{
	for (; options && options->name; options++)
		if (strncmp(word, "--", 2) == 0 && strcmp(word + 2, options->name) == 0)
			return options;
	return NULL;
}

int gantry_ctl_complete(struct gantry_ctl *ctl)
{
	const struct gantry_verb *verb = NULL;
	const char *noun = NULL;
	const char *last = ctl->nargs ? ctl->args[ctl->nargs - 1] : "";
	int npositional = 0, words = 0;

	/* The tab key must not hang on an agent that does not answer. */
	if (!ctl->timeout_given)
		ctl->timeout_ns = 500 * 1000000ll;
	for (int i = 0; i + 1 < ctl->nargs; i++) {
		const char *word = ctl->args[i];
		const struct gantry_verb_option *option = find_option(gantry_global_options, word);

		if (!option && verb)
			option = find_option(verb->options, word);
		if (option && option->metavar) {
			if (i + 2 == ctl->nargs) {
				complete_words(ctl, option->words);
				return 0;
			}
			if (strcmp(option->name, "socket") == 0)
				ctl->socket_path = ctl->args[i + 1];
			i++;
		} else if (word[0] == '-') {
			continue;
		} else if (!noun) {
			noun = word;
			verb = gantry_verb_find(noun, NULL, &words);
		} else if (!verb) {
			verb = gantry_verb_find(noun, word, &words);
			if (!verb)
				return 0;
		} else {
			npositional++;
		}
	}
	if (last[0] == '-') {
		complete_options(ctl->out, gantry_global_options);
		if (verb)
			complete_options(ctl->out, verb->options);
	} else if (!noun) {
		complete_nouns(ctl->out);
	} else if (!verb) {
		complete_verbs(ctl->out, noun);
	} else if (npositional == 0) {
		complete_words(ctl, verb->words);
	}
	return 0;
}
