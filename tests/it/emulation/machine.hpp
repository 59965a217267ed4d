// A block of a GPU on one thread of a CPU: this file is compiled before the kernels' text, in which matrix
// instructions, copies and other assembly are replaced by calls of these functions.
//
// Each thread of a block is a context. A barrier leaves it; a warp continues when all of its threads have come to a
// barrier of the warp, a block when all of its threads have come to a barrier of the block. Copies are done at once.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __noinline__
#define __shared__ static
#define __forceinline__ inline
using std::isfinite;
using std::max;
using std::min;
using std::isinf;
using std::isnan;

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct Position { unsigned x, y, z; };
static Position threadIdx, blockIdx;

[[noreturn]] static void fail(const char* what) {
    printf("FAILED: %s\n", what);
    fflush(stdout);
    exit(1);
}
static inline void not_emulated() { fail("an instruction that is not emulated"); }

// ---------------------------------------- threads of a block

enum Barrier { NO_BARRIER = 0, BLOCK_BARRIER = 1, WARP_BARRIER = 2 };
struct Thread {
    ucontext_t context;
    bool done;
    Barrier barrier;
};
static constexpr int MOST_THREADS = 1024;
static Thread threads[MOST_THREADS];
static ucontext_t scheduler;
static int current;
static void (*body)(void*);
static void* body_data;

static void leave(Barrier barrier) {
    threads[current].barrier = barrier;
    swapcontext(&threads[current].context, &scheduler);
}
static void __syncthreads() { leave(BLOCK_BARRIER); }
static void warp_barrier() { leave(WARP_BARRIER); }
static void __syncwarp(unsigned = 0) { warp_barrier(); }

static void start_thread() {
    body(body_data);
    threads[current].done = true;
    swapcontext(&threads[current].context, &scheduler);
}
// Runs a warp until its threads have ended or wait for the block.
static void run_warp(int first) {
    for (;;) {
        for (int i = first; i < first + 32; ++i) {
            if (threads[i].done || threads[i].barrier == BLOCK_BARRIER) continue;
            current = i, threadIdx.x = i;
            swapcontext(&scheduler, &threads[i].context);
        }
        int kinds = 0;
        for (int i = first; i < first + 32; ++i)
            if (!threads[i].done) kinds |= threads[i].barrier;
        if (kinds == (BLOCK_BARRIER | WARP_BARRIER)) fail("threads of a warp wait for different barriers");
        if (kinds != WARP_BARRIER) return;
        for (int i = first; i < first + 32; ++i) threads[i].barrier = NO_BARRIER;
    }
}
static void run_block(int count, void (*run)(void*), void* data) {
    static constexpr size_t STACK = 256 << 10;
    static char* const stacks = (char*)malloc(STACK * MOST_THREADS);
    if (count > MOST_THREADS || count % 32 != 0) fail("the number of threads of a block");
    body = run, body_data = data;
    for (int i = 0; i < count; ++i) {
        Thread& thread = threads[i];
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = stacks + i * STACK;
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, start_thread, 0);
        thread.done = false, thread.barrier = NO_BARRIER;
    }
    for (;;) {
        for (int warp = 0; warp < count; warp += 32) run_warp(warp);
        int ended = 0;
        for (int i = 0; i < count; ++i) ended += threads[i].done;
        if (ended == count) return;
        if (ended > 0) fail("threads end before others come to a barrier");
        for (int i = 0; i < count; ++i) threads[i].barrier = NO_BARRIER;
    }
}

// ---------------------------------------- functions of the compiler

template <class To, class From> static To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
static float __uint_as_float(unsigned bits) { return bits_as<float>(bits); }
static unsigned __float_as_uint(float value) { return bits_as<unsigned>(value); }
static float __int_as_float(int bits) { return bits_as<float>(bits); }
static int __float_as_int(float value) { return bits_as<int>(value); }
static double __longlong_as_double(long long bits) { return bits_as<double>(bits); }
template <class T> static T __ldcg(const T* at) { return *at; }
static float rsqrtf(float a) { return 1.0f / sqrtf(a); }
static float __fdividef(float a, float b) { return a / b; }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
    const unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= (unsigned)(bytes >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return out;
}
static unsigned long long __cvta_generic_to_shared(const void* at) { return (unsigned long long)at; }

static unsigned long long exchanged[MOST_THREADS];
// The value of another lane of the warp; its own if there is no such lane.
template <class T> static T of_lane(T value, int lane) {
    const int me = threadIdx.x, warp = me / 32 * 32;
    static_assert(sizeof(T) <= sizeof(exchanged[0]), "values of at most 64 bits");
    memcpy(&exchanged[me], &value, sizeof(T));
    warp_barrier();
    T out;
    memcpy(&out, &exchanged[lane < 0 || lane > 31 ? me : warp + lane], sizeof(T));
    warp_barrier();
    return out;
}
// Lane `lane` of this thread's group of `width` lanes.
template <class T> static T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return of_lane(value, (int)threadIdx.x % 32 / width * width + lane % width);
}
template <class T> static T __shfl_xor_sync(unsigned, T value, int distance) {
    return of_lane(value, (int)threadIdx.x % 32 ^ distance);
}
template <class T> static T __shfl_up_sync(unsigned, T value, int distance) {
    return of_lane(value, (int)threadIdx.x % 32 - distance);
}
template <class T> static T __shfl_down_sync(unsigned, T value, int distance) {
    return of_lane(value, (int)threadIdx.x % 32 + distance);
}
// The combination of the values of all lanes of the warp.
template <class Combine> static unsigned of_all_lanes(unsigned value, const Combine& combine) {
    const int me = threadIdx.x, warp = me / 32 * 32;
    exchanged[me] = value;
    warp_barrier();
    unsigned out = 0;
    for (int lane = 0; lane < 32; ++lane) out = combine(out, (unsigned)exchanged[warp + lane], lane);
    warp_barrier();
    return out;
}
static unsigned __reduce_add_sync(unsigned, unsigned value) {
    return of_all_lanes(value, [](unsigned sum, unsigned value, int) { return sum + value; });
}
static unsigned __ballot_sync(unsigned, bool is_set) {
    return of_all_lanes(is_set, [](unsigned bits, unsigned is_set, int lane) { return bits | is_set << lane; });
}
static int __syncthreads_or(int value) {
    static int any;
    if (value != 0) any = 1;
    __syncthreads();
    const int out = any;
    __syncthreads();
    any = 0;
    // A thread that goes on may set it again.
    __syncthreads();
    return out;
}
static int __any_sync(unsigned, int) { not_emulated(); return 0; }
static unsigned __reduce_max_sync(unsigned, unsigned) { not_emulated(); return 0; }

// ---------------------------------------- instructions

static unsigned short emulated_bf16(float value) {
    const unsigned bits = bits_as<unsigned>(value);
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// The larger numbers of two pairs of 16 bits; NaN if one is NaN.
static unsigned emulated_larger_pair(unsigned a, unsigned b) {
    unsigned out = 0;
    for (int half = 0; half < 32; half += 16) {
        const unsigned x = a >> half & 0xffff, y = b >> half & 0xffff;
        const float first = bits_as<float>(x << 16), second = bits_as<float>(y << 16);
        out |= (second > first || second != second ? y : x) << half;
    }
    return out;
}
static unsigned emulated_tf32(float value) {
    const unsigned bits = bits_as<unsigned>(value);
    return (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}
// `size` bytes and zeros up to `bytes`.
static void emulated_copy(void* to, const void* from, int bytes, int size) {
    if ((size_t)to % bytes != 0 || size > 0 && (size_t)from % bytes != 0) fail("a copy from or to an odd address");
    memset(to, 0, bytes);
    memcpy(to, from, size);
}

struct Fragments {
    unsigned a[4], b[2];
    const void* row;
};
static Fragments fragments[MOST_THREADS];

// Four matrices of 8x8 elements of 16 bits, whose rows the lanes name; or their transposes.
static void emulated_load_matrix(unsigned (&out)[4], const void* row, bool is_transposed) {
    const int me = threadIdx.x, warp = me / 32 * 32, lane = me % 32;
    if ((size_t)row % 16 != 0) fail("a row of a matrix at an odd address");
    fragments[me].row = row;
    warp_barrier();
    for (int matrix = 0; matrix < 4; ++matrix) {
        unsigned short pair[2];
        for (int e = 0; e < 2; ++e) {
            int r = lane / 4, c = lane % 4 * 2 + e;
            if (is_transposed) std::swap(r, c);
            pair[e] = ((const unsigned short*)fragments[warp + matrix * 8 + r].row)[c];
        }
        out[matrix] = pair[0] | (unsigned)pair[1] << 16;
    }
    warp_barrier();
}
// c[16x8] += a[16xK] b[Kx8], in the order of the sum; factors of 32 bits if K is 8, otherwise of 16.
template <int K> static void emulated_mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    const int me = threadIdx.x, warp = me / 32 * 32, lane = me % 32;
    memcpy(fragments[me].a, a, sizeof(a));
    memcpy(fragments[me].b, b, sizeof(b));
    warp_barrier();
    float sums[4];
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        float sum = c[i];
        for (int k = 0; k < K; ++k) {
            const int half = k / (K / 2), in_lane = k % (K / 2) / (K / 8);
            unsigned left = fragments[warp + row % 8 * 4 + in_lane].a[row / 8 + half * 2];
            unsigned right = fragments[warp + col * 4 + in_lane].b[half];
            if (K == 16) {
                // Numbers of 16 bits are the upper halves of floats.
                left = (k % 2 != 0 ? left >> 16 : left & 0xffff) << 16;
                right = (k % 2 != 0 ? right >> 16 : right & 0xffff) << 16;
            }
            sum = fmaf(bits_as<float>(left), bits_as<float>(right), sum);
        }
        sums[i] = sum;
    }
    warp_barrier();
    memcpy(c, sums, sizeof(c));
}
