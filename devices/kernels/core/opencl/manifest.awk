# SPDX-License-Identifier: Apache-2.0
# core.manifest and the sources with host functions, to the manifest of core-KIND; with -v kind=opencl or hip, and -v image=FILE for another one.
BEGIN {
	print "# The kernels of core that have a variant for " kind " devices. Made from core.manifest."
	print "module core-" kind " 1"
	print "image " kind " " (image ? image : "core-" kind ".so")
}
FILENAME ~ /manifest$/ && $1 == "kernel" { names[++n] = $2; lines[$2] = $0 }
/^KERNEL\(/ { sub(/^KERNEL\(/, ""); sub(/\).*/, ""); has[$0] = 1 }
END {
	for (i = 1; i <= n; i++)
		if (names[i] in has)
			print lines[names[i]]
}
