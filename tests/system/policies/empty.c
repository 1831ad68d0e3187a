/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object that is no policy. */
int gantry_policy_empty(void);

int gantry_policy_empty(void)
{
	return 0;
}
