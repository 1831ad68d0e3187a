/* SPDX-License-Identifier: Apache-2.0 */
/* What gantry-vm reads of libvirt's XML and QEMU's answers, recorded from both, and where it puts a device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host-agent/vm/emulated.h"
#include "host-agent/vm/place.h"
#include "host-agent/vm/row.h"
#include "host-agent/vm/socket.h"
#include "tests/unit/runner.h"

#define MIB (1ull << 20)

static struct gantry_libraries lib;

static char *sample(const char *name)
{
	char path[512], *text;

	snprintf(path, sizeof(path), "%s/%s", SAMPLES_DIR, name);
	ck_assert_msg(gantry_file_read(path, 1 << 20, &text, NULL) == 0, "no %s", path);
	return text;
}

static void load(const char *name, struct gantry_vm_domain *domain)
{
	_cleanup_free_ char *text = sample(name);
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_msg(gantry_vm_domain_parse(&lib, text, domain, &err) == 0, "%s", err.text);
}

static void load_pci(const char *name, const char *id, struct gantry_vm_pci *pci)
{
	_cleanup_free_ char *text = sample(name);
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_msg(gantry_vm_pci_parse(text, id, pci, &err) == 0, "%s", err.text);
}

/* --- domain --- */

START_TEST(test_domain_of_a_pc_has_our_door)
{
	struct gantry_vm_domain d;

	load("pc.xml", &d);
	ck_assert_str_eq(d.machine, "pc-i440fx-7.2");
	ck_assert(d.acpi && d.pci && !d.pcie && !d.native_hotplug && !d.has_vsock);
	ck_assert_uint_eq(d.ndoors, 1);
	ck_assert_int_eq(d.doors[0].transport, GANTRY_VM_IVSHMEM);
	ck_assert_str_eq(d.doors[0].tenant, "red");
	ck_assert_str_eq(d.doors[0].alias, "ua-gantry-red");
	ck_assert_str_eq(d.doors[0].socket, "/run/gantry/doors/red/ivshmem.sock");
	ck_assert(d.doors[0].has_address);
	ck_assert_uint_eq(d.doors[0].address.slot, 0x1f);
	ck_assert_ptr_nonnull(strstr(d.doors[0].xml, "<shmem name='gantry-red'")
				      ?: strstr(d.doors[0].xml, "<shmem name=\"gantry-red\""));
	ck_assert_uint_eq(d.used[0] >> 0x1f, 1);
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_domain_of_a_q35_has_root_ports)
{
	struct gantry_vm_domain d;

	load("q35.xml", &d);
	ck_assert(d.pci && d.pcie);
	ck_assert_uint_eq(d.ndoors, 0);
	ck_assert(!d.port[0].there && d.port[1].there && d.port[5].there);
	ck_assert(d.port[5].has_address);
	ck_assert_uint_eq(d.port[5].address.slot, 1);
	ck_assert_uint_eq(d.port[5].address.function, 4);
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_domain_door_written_by_hand_is_found_by_its_name)
{
	static const char text[] =
		"<domain><devices><shmem name='gantry-blue'><server path='/a&amp;b'/></shmem>"
		"<shmem name='gantry-plain'><size unit='M'>1</size></shmem>"
		"<shmem name='other'><server path='/c'/></shmem>"
		"<shmem name='gantry-No Name'><server path='/c'/></shmem>"
		"<vsock model='virtio'><cid auto='no' address='42'/><alias name='ua-gantry-red'/></vsock>"
		"</devices></domain>";
	struct gantry_vm_domain d;

	ck_assert_int_eq(gantry_vm_domain_parse(&lib, text, &d, NULL), 0);
	ck_assert_uint_eq(d.ndoors, 2);
	ck_assert_str_eq(d.doors[0].tenant, "blue");
	ck_assert_str_eq(d.doors[0].socket, "/a&b");
	ck_assert_str_eq(d.doors[0].alias, "");
	ck_assert_int_eq(d.doors[1].transport, GANTRY_VM_VSOCK);
	ck_assert_uint_eq(d.doors[1].cid, 42);
	ck_assert(d.has_vsock);
	ck_assert_uint_eq(d.vsock_cid, 42);
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_domain_of_what_is_none_is_refused)
{
	struct gantry_vm_domain d = { .ndoors = 77 };
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_vm_domain_parse(&lib, "<domain><devices>", &d, &err), -EINVAL);
	ck_assert_int_eq(gantry_vm_domain_parse(&lib, "<network/>", &d, &err), -EINVAL);
	ck_assert_int_eq(gantry_vm_domain_parse(&lib, "", &d, &err), -EINVAL);
	ck_assert_uint_eq(d.ndoors, 77);
	ck_assert_int_ne(err.text[0], 0);
}
END_TEST

START_TEST(test_domain_with_native_hotplug_is_told)
{
	static const char text[] =
		"<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><devices/>"
		"<qemu:commandline><qemu:arg value='-global'/>"
		"<qemu:arg value='ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off'/>"
		"</qemu:commandline></domain>";
	struct gantry_vm_domain d;

	ck_assert_int_eq(gantry_vm_domain_parse(&lib, text, &d, NULL), 0);
	ck_assert(d.native_hotplug && !d.pci);
	gantry_vm_domain_fini(&d);
}
END_TEST

/* --- what the guest has made of it --- */

START_TEST(test_pci_of_a_guest_that_has_the_device)
{
	struct gantry_vm_pci pci;

	load_pci("pc-pci.json", "ua-gantry-red", &pci);
	ck_assert(pci.found);
	ck_assert_uint_eq(pci.address.slot, 0x1f);
	ck_assert(pci.bar[2].assigned && pci.bar[0].assigned);
	ck_assert_uint_eq(pci.bar[2].bytes, 256 * MIB);
	ck_assert_uint_ge(pci.bar[2].address, 1ull << 32);
	ck_assert_uint_eq(pci.used & 1u, 1);
	load_pci("pc-pci.json", "ua-gantry-blue", &pci);
	ck_assert(!pci.found);
}
END_TEST

START_TEST(test_pci_address_of_minus_one_is_none)
{
	static const char text[] =
		"{\"return\":[{\"bus\":0,\"devices\":[{\"bus\":0,\"slot\":3,\"function\":0,"
		"\"qdev_id\":\"d\",\"regions\":[{\"bar\":2,\"type\":\"memory\",\"address\":-1,"
		"\"size\":67108864},{\"bar\":9,\"address\":5,\"size\":1}]}]}]}";
	struct gantry_vm_pci pci;

	ck_assert_int_eq(gantry_vm_pci_parse(text, "d", &pci, NULL), 0);
	ck_assert(pci.found && !pci.bar[2].assigned);
	ck_assert_uint_eq(pci.bar[2].address, 0);
	ck_assert_uint_eq(pci.bar[2].bytes, 64 * MIB);
}
END_TEST

START_TEST(test_pci_of_what_is_no_answer_is_refused)
{
	static const char *const texts[] = {
		"", "{", "[]", "7", "{\"return\":{}}", "{\"error\":{\"desc\":\"no\"}}"
	};
	struct gantry_vm_pci pci = { .used = 77 };
	struct gantry_err err = GANTRY_ERR_NONE;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_int_eq(gantry_vm_pci_parse(texts[i], "d", &pci, &err), -EINVAL);
	ck_assert_uint_eq(pci.used, 77);
}
END_TEST

START_TEST(test_window_fits_only_what_can_be_aligned)
{
	const struct gantry_vm_root_slot slot = { .window_base = 0xfea00000,
						  .window_end = 0xfec00000 };
	const struct gantry_vm_root_slot odd = { .window_base = 48 * MIB, .window_end = 160 * MIB };
	const struct gantry_vm_root_slot none = { .window_base = 0xfff00000,
						  .window_end = 0x100000 };

	ck_assert(gantry_vm_window_fits(&slot, 2 * MIB));
	ck_assert(!gantry_vm_window_fits(&slot, 4 * MIB));
	ck_assert(gantry_vm_window_fits(&odd, 64 * MIB));
	ck_assert(!gantry_vm_window_fits(&odd, 128 * MIB));
	ck_assert(!gantry_vm_window_fits(&none, 1));
	ck_assert(!gantry_vm_window_fits(&slot, 1ull << 62));
}
END_TEST

/* --- place --- */

START_TEST(test_place_on_a_pc_is_the_last_free_slot)
{
	struct gantry_vm_domain d;
	struct gantry_vm_pci pci;
	struct gantry_vm_address at;

	load("pc.xml", &d);
	load_pci("pc-pci.json", NULL, &pci);
	ck_assert_int_eq(gantry_vm_place(&d, &pci, 256 * MIB, &at, NULL), 0);
	ck_assert_uint_eq(at.bus, 0);
	ck_assert_uint_eq(at.slot, 0x1e);
	/* Devices that libvirt does not know, as of qemu:commandline, count, too. */
	pci.used |= 1u << 0x1e;
	ck_assert_int_eq(gantry_vm_place(&d, &pci, 256 * MIB, &at, NULL), 0);
	ck_assert_uint_eq(at.slot, 0x1d);
	ck_assert_uint_eq(gantry_vm_largest(&d, &pci), UINT64_MAX);
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_place_on_a_full_pc_is_refused)
{
	struct gantry_vm_address at = { .slot = 77 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_domain d;

	load("pc-inactive.xml", &d);
	d.used[0] = ~1u; /* all but the host bridge's, which no XML names */
	ck_assert_int_eq(gantry_vm_place(&d, NULL, 64 * MIB, &at, &err), -ENOSPC);
	ck_assert_uint_eq(at.slot, 77);
	ck_assert_uint_eq(gantry_vm_largest(&d, NULL), 0);
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_place_on_a_running_pc_without_acpi_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_address at;
	struct gantry_vm_domain d;
	struct gantry_vm_pci pci;

	load("pc.xml", &d);
	load_pci("pc-pci.json", NULL, &pci);
	d.acpi = false;
	ck_assert_int_eq(gantry_vm_place(&d, &pci, 64 * MIB, &at, &err), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "<acpi/>"));
	ck_assert_int_eq(gantry_vm_place(&d, NULL, 64 * MIB, &at, &err), 0);
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_place_on_a_q35_wants_a_port_with_a_window)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_domain narrow, wide;
	struct gantry_vm_address at;
	struct gantry_vm_pci pci;

	load("q35.xml", &narrow);
	load_pci("q35-pci.json", NULL, &pci);
	ck_assert_int_eq(gantry_vm_place(&narrow, &pci, 256 * MIB, &at, &err), -E2BIG);
	ck_assert_ptr_nonnull(strstr(err.text, "pcie-root-port.pref64-reserve=256M"));
	ck_assert_uint_eq(gantry_vm_largest(&narrow, &pci), 2 * MIB);
	/* Its firmware makes room for what is there at the start. */
	ck_assert_int_eq(gantry_vm_place(&narrow, NULL, 256 * MIB, &at, &err), 0);
	narrow.native_hotplug = true;
	ck_assert_int_eq(gantry_vm_place(&narrow, &pci, 256 * MIB, &at, &err), 0);
	gantry_vm_domain_fini(&narrow);

	load("q35-wide.xml", &wide);
	load_pci("q35-wide-pci.json", NULL, &pci);
	ck_assert_int_eq(gantry_vm_place(&wide, &pci, 256 * MIB, &at, &err), 0);
	ck_assert_uint_eq(at.slot, 0);
	ck_assert(wide.port[at.bus].there && !wide.used[at.bus]);
	ck_assert_uint_eq(gantry_vm_largest(&wide, &pci), 1024 * MIB);
	gantry_vm_domain_fini(&wide);
}
END_TEST

START_TEST(test_place_on_a_q35_whose_ports_are_taken_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_address at;
	struct gantry_vm_domain d;
	struct gantry_vm_pci pci;

	load("q35-wide.xml", &d);
	load_pci("q35-wide-pci.json", NULL, &pci);
	/* One by libvirt's word, the others by QEMU's. */
	d.used[1] = 1;
	for (unsigned int slot = 0; slot < GANTRY_VM_SLOTS; slot++)
		for (unsigned int function = 0; function < GANTRY_VM_FUNCTIONS; function++)
			pci.root[slot][function].occupied = true;
	ck_assert_int_eq(gantry_vm_place(&d, &pci, 4 * MIB, &at, &err), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(err.text, "pcie-root-port"));
	gantry_vm_domain_fini(&d);
}
END_TEST

START_TEST(test_place_on_a_machine_without_pci_is_refused)
{
	struct gantry_vm_domain d = { .machine = "microvm" };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_vm_address at;

	ck_assert_int_eq(gantry_vm_place(&d, NULL, 4 * MIB, &at, &err), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "microvm"));
}
END_TEST

/* --- the socket --- */

START_TEST(test_socket_check_tells_who_may_connect)
{
	char dir[] = "/tmp/gantry-XXXXXX", path[64], file[64];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct stat st;
	int sock;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(file, sizeof(file), "%s/f", dir);
	ck_assert_int_eq(gantry_unix_listen(path, SOCK_STREAM, 0600, &sock), 0);
	ck_assert_int_eq(gantry_file_replace(file, "", 0, 0666), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(gantry_vm_socket_check(path, 0, 0, &err), 0);
	ck_assert_int_eq(gantry_vm_socket_check(path, 64055, 64055, &err), -EACCES);
	ck_assert_ptr_nonnull(strstr(err.text, "may not enter"));
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(gantry_vm_socket_check(path, 64055, 64055, &err), -EACCES);
	ck_assert_ptr_nonnull(strstr(err.text, "mode 0600"));
	ck_assert_int_eq(chmod(path, 0660), 0);
	ck_assert_int_eq(gantry_vm_socket_check(path, 64055, st.st_gid, &err), 0);
	ck_assert_int_eq(chmod(path, 0606), 0);
	ck_assert_int_eq(gantry_vm_socket_check(path, 64055, 64055, &err), 0);
	ck_assert_int_eq(gantry_vm_socket_check(file, 0, 0, &err), -ENOTSOCK);
	close(sock);
	unlink(path);
	unlink(file);
	ck_assert_int_eq(gantry_vm_socket_check(path, 0, 0, &err), -ENOENT);
	ck_assert_int_eq(gantry_vm_socket_check("here", 0, 0, &err), -ENOENT);
	rmdir(dir);
}
END_TEST

/* --- rows --- */

START_TEST(test_row_json_is_as_promised)
{
	Gantry__Admin__UInt bytes = GANTRY__ADMIN__UINT__INIT, zero = GANTRY__ADMIN__UINT__INIT;
	const struct gantry_vm_row row = {
		.domain = "web1",
		.uuid = "f7875080-6de8-40e4-93a5-8cfc9bcbc8af",
		.state = "running",
		.machine = "pc-i440fx-7.2",
		.tenant = "red",
		.transport = "ivshmem",
		.in = "live,config",
		.alias = "ua-gantry-red",
		.socket = "/run/gantry/doors/red/ivshmem.sock",
		.pci = "00:1f.0",
		.address = "0x100000000",
		.door = "open",
		.bytes = &bytes,
		.guests = &zero,
		.claims = &zero,
		.desks = &zero,
		.epoch = &zero,
		.largest = &bytes,
	};
	_cleanup_free_ char *wanted = NULL, *text = NULL;
	json_object *object;

	bytes.value = 256 * MIB;
	object = gantry_fields_json(&gantry_vm_fields, &row);
	ck_assert_int_ge(
		asprintf(&text, "%s\n",
			 json_object_to_json_string_ext(
				 object, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						 JSON_C_TO_STRING_NOSLASHESCAPE)),
		0);
	json_object_put(object);
	if (getenv("GANTRY_GOLDEN_UPDATE"))
		ck_assert_int_eq(gantry_file_replace(GOLDEN_DIR "/ctl/vm.json", text, strlen(text),
						     0644),
				 0);
	ck_assert_int_eq(gantry_file_read(GOLDEN_DIR "/ctl/vm.json", 1 << 20, &wanted, NULL), 0);
	ck_assert_str_eq(text, wanted);
}
END_TEST

START_TEST(test_host_of_a_uri_is_what_its_connection_goes_to)
{
	static const char *const uris[][2] = {
		{ "qemu+ssh://root@south:22/system", "south" },
		{ "qemu+tls://south.example/system?pkipath=/x", "south.example" },
		{ "qemu+tcp://[fd00::2]:16509/system", "fd00::2" },
		{ "qemu+ssh://a@b@south/system", "south" },
		{ "qemu:///system", "" },
		{ "qemu+unix:///system?socket=/run/x", "" },
		{ "south", "" },
		{ "qemu+ssh://south", "south" },
		{ "", "" },
	};
	char host[32];

	for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
		gantry_vm_uri_host(uris[i][0], host, sizeof(host));
		ck_assert_str_eq(host, uris[i][1]);
	}
	gantry_vm_uri_host("qemu+ssh://a-host-whose-name-is-longer-than-the-room/", host, 8);
	ck_assert_str_eq(host, "");
}
END_TEST

/* --- emulated machines --- */

#define NO_KVM	 "{\"return\":{\"enabled\":false,\"present\":true},\"id\":\"libvirt-7\"}"
#define KVM	 "{\"return\":{\"enabled\":true,\"present\":true},\"id\":\"libvirt-7\"}"
#define QEMU_7_2 "{\"return\":{\"qemu\":{\"micro\":22,\"minor\":2,\"major\":7},\"package\":\"\"}}"
#define QEMU_9_0 "{\"return\":{\"qemu\":{\"micro\":0,\"minor\":0,\"major\":9},\"package\":\"\"}}"
#define EVEN	 "{\"return\":{\"base-memory\":268435456,\"plugged-memory\":0}}"
#define ODD	 "{\"return\":{\"base-memory\":268443648,\"plugged-memory\":0}}"

START_TEST(test_emulated_machine_of_an_old_qemu_loses_writes_where_its_memory_is_even)
{
	static const struct gantry_vm_emulation loses = { NO_KVM, QEMU_7_2, EVEN };
	struct gantry_err caution = GANTRY_ERR_NONE;

	ck_assert(gantry_vm_loses_writes(&loses, &caution));
	ck_assert_msg(strstr(caution.text, "QEMU 7.2 ") && strstr(caution.text, "9.0"), "%s",
		      caution.text);
}
END_TEST

START_TEST(test_emulated_machine_that_loses_nothing_or_of_which_nothing_is_known_gets_no_caution)
{
	static const struct gantry_vm_emulation others[] = {
		{ KVM, QEMU_7_2, EVEN },
		{ NO_KVM, QEMU_9_0, EVEN },
		{ NO_KVM, QEMU_7_2, ODD },
		{ NULL, QEMU_7_2, EVEN },
		{ NO_KVM, NULL, EVEN },
		{ NO_KVM, QEMU_7_2, NULL },
		{ "{", "[]", "7" },
		{ "{\"return\":{\"enabled\":0}}", QEMU_7_2, EVEN },
		{ NO_KVM, "{\"return\":{\"qemu\":\"7.2\"}}", EVEN },
		{ NO_KVM, QEMU_7_2, "{\"return\":[268435456]}" },
	};
	struct gantry_err caution = GANTRY_ERR_NONE;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_msg(!gantry_vm_loses_writes(&others[i], &caution), "row %zu", i);
	ck_assert_str_eq(caution.text, "");
}
END_TEST

/* Where libvirt's libraries are not installed, only what needs none of them is tested. */
static void add_domain_tests(Suite *suite)
{
	TCase *domain = gantry_unit_case(suite, "domain");
	TCase *place = gantry_unit_case(suite, "place");

	tcase_add_test(domain, test_domain_of_a_pc_has_our_door);
	tcase_add_test(domain, test_domain_of_a_q35_has_root_ports);
	tcase_add_test(domain, test_domain_door_written_by_hand_is_found_by_its_name);
	tcase_add_test(domain, test_domain_of_what_is_none_is_refused);
	tcase_add_test(domain, test_domain_with_native_hotplug_is_told);
	tcase_add_test(place, test_place_on_a_pc_is_the_last_free_slot);
	tcase_add_test(place, test_place_on_a_full_pc_is_refused);
	tcase_add_test(place, test_place_on_a_running_pc_without_acpi_is_refused);
	tcase_add_test(place, test_place_on_a_q35_wants_a_port_with_a_window);
	tcase_add_test(place, test_place_on_a_q35_whose_ports_are_taken_is_refused);
}

int main(void)
{
	Suite *suite = suite_create("vm");
	TCase *pci = gantry_unit_case(suite, "pci");
	TCase *door = gantry_unit_case(suite, "door");

	TCase *emulated = gantry_unit_case(suite, "emulated");

	tcase_add_test(emulated,
		       test_emulated_machine_of_an_old_qemu_loses_writes_where_its_memory_is_even);
	tcase_add_test(
		emulated,
		test_emulated_machine_that_loses_nothing_or_of_which_nothing_is_known_gets_no_caution);
	if (gantry_libraries_load(&lib, NULL) == 0)
		add_domain_tests(suite);
	tcase_add_test(pci, test_pci_of_a_guest_that_has_the_device);
	tcase_add_test(pci, test_pci_address_of_minus_one_is_none);
	tcase_add_test(pci, test_pci_of_what_is_no_answer_is_refused);
	tcase_add_test(pci, test_window_fits_only_what_can_be_aligned);
	tcase_add_test(pci, test_place_on_a_machine_without_pci_is_refused);
	tcase_add_test(door, test_socket_check_tells_who_may_connect);
	tcase_add_test(door, test_row_json_is_as_promised);
	tcase_add_test(door, test_host_of_a_uri_is_what_its_connection_goes_to);
	return gantry_unit_run(suite);
}
