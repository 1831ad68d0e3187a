/* SPDX-License-Identifier: Apache-2.0 */
/* Does not compile, on purpose: the guest gets the compiler's own words. */
extern "C" __global__ void broken(float *x)
{
	*x = no_such_name;
}
