/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of every shape that tools/stubgen tells apart. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum {
	FIX_OK = 0,
	FIX_BAD = 1,
	FIX_NEVER = 2,
	FIX_BROKEN = 3
} fixStatus;
typedef struct fixContext *fixHandle;
typedef int fixPlan;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
	int32_t x, y;
} fixPair;
typedef struct {
	const char *name;
} fixNamed;
typedef void (*fixCallback)(int level);

fixStatus fixCreate(fixHandle *handle);
fixStatus fixDestroy(fixHandle handle);
fixStatus fixFinalize(fixHandle handle);
fixStatus fixSetStream(fixHandle handle, cudaStream_t stream);
fixStatus fixPlanCreate(fixPlan *plan, int n);
fixStatus fixScale(fixHandle handle, int n, const float *alpha, float *x);
fixStatus fixGetVersion(fixHandle handle, int *version);
fixStatus fixShape(fixHandle handle, int nbDims, const int dims[]);
fixStatus fixPairs(fixHandle handle, const fixPair *in, fixPair *out);
fixStatus fixSum(fixHandle handle, int n, const int *weights);
fixStatus fixSetCallback(fixCallback callback);
fixStatus fixLog(FILE *file);
fixStatus fixNamedOne(fixHandle handle, const fixNamed *named);
fixStatus fixBuffer(fixHandle handle, void *buf, size_t bytes);
const char *fixText(fixStatus status);
void *fixSecret(fixHandle handle);
static inline int fixInline(void)
{
	return 0;
}
