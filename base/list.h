/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doubly linked lists whose links live in the objects. The list owns nothing.
 *
 * The head is a link of its own; a link that is on no list points at itself, so removing it twice
 *is harmless. Never in memory that a peer can write.
 *
 *	struct gantry_list ready;
 *	gantry_list_init(&ready);
 *	gantry_list_push_back(&ready, &task->link);
 *	gantry_list_for_each(&ready, struct task, link, t)
 *		...
 *
 * Threads: as the data the list is part of.
 */
#ifndef GANTRY_BASE_LIST_H
#define GANTRY_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/array.h"

struct gantry_list {
	struct gantry_list *next;
	struct gantry_list *prev;
};

/* A head (or a link) defined in place: `struct gantry_list l = GANTRY_LIST_INIT(l);` */
#define GANTRY_LIST_INIT(name)   \
	{                        \
		&(name), &(name) \
	}

/* A head: no objects. A link: on no list. */
static inline void gantry_list_init(struct gantry_list *list)
{
	list->next = list;
	list->prev = list;
}

/* For a head: has it no objects? For a link: is it on no list? */
static inline bool gantry_list_is_empty(const struct gantry_list *list)
{
	return list->next == list;
}

/* @link must be on no list. */
static inline void gantry_list_insert_after(struct gantry_list *where, struct gantry_list *link)
{
	link->prev = where;
	link->next = where->next;
	where->next->prev = link;
	where->next = link;
}

/* @link must be on no list. */
static inline void gantry_list_insert_before(struct gantry_list *where, struct gantry_list *link)
{
	gantry_list_insert_after(where->prev, link);
}

static inline void gantry_list_push_front(struct gantry_list *head, struct gantry_list *link)
{
	gantry_list_insert_after(head, link);
}

static inline void gantry_list_push_back(struct gantry_list *head, struct gantry_list *link)
{
	gantry_list_insert_before(head, link);
}

/* Take @link off whatever list it is on; harmless when it is on none. */
static inline void gantry_list_remove(struct gantry_list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	gantry_list_init(link);
}

/* The first link, removed; NULL when empty. */
static inline struct gantry_list *gantry_list_pop_front(struct gantry_list *head)
{
	struct gantry_list *link = head->next;

	if (link == head)
		return NULL;
	gantry_list_remove(link);
	return link;
}

/* Move every object of @from to the end of @to; @from is empty afterwards. */
static inline void gantry_list_splice_back(struct gantry_list *to, struct gantry_list *from)
{
	if (gantry_list_is_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	gantry_list_init(from);
}

/* Objects on the list: walks all of it. */
static inline size_t gantry_list_count(const struct gantry_list *head)
{
	size_t count = 0;

	for (const struct gantry_list *link = head->next; link != head; link = link->next)
		count++;
	return count;
}

/* The object around a link. */
#define gantry_list_entry(link, type, member) gantry_container_of(link, type, member)

/* The first object; NULL when empty. Evaluates @head twice. */
#define gantry_list_first(head, type, member) \
	(gantry_list_is_empty(head) ? NULL : gantry_list_entry((head)->next, type, member))

/* Every object in order, as a `type *name`. The body must not remove @name: use _safe for that. */
#define gantry_list_for_each(head, type, member, name)                                            \
	for (type *name = gantry_list_entry((head)->next, type, member); &name->member != (head); \
	     name = gantry_list_entry(name->member.next, type, member))

/* As above; the body may remove and free @name, and nothing else. */
#define gantry_list_for_each_safe(head, type, member, name)                           \
	for (type *name = gantry_list_entry((head)->next, type, member),              \
		  *name##_next_ = gantry_list_entry(name->member.next, type, member); \
	     &name->member != (head); name = name##_next_,                            \
		  name##_next_ = gantry_list_entry(name->member.next, type, member))

#endif
