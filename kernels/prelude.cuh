// Shared by all kernel families: number types, vector access, activations, random numbers, reductions, matrix
// instructions.
//
// No header of the CUDA toolkit is included, so that the run-time compiler (NVRTC) is sufficient.
//
// An operation is a struct with constant dimensions:
//
//     static constexpr int PHASES;                              // launches, one after the other; at most 3
//     static constexpr int THREADS;                             // threads a block, a multiple of 32
//     static constexpr int blocks(int phase);                   // blocks of a phase
//     static constexpr int smem(int phase);                     // bytes of dynamic shared memory of a phase
//     static constexpr long long WORK;                          // bytes of scratch memory in the work slot
//     template <int PHASE> static __device__ void run(const Args& a, int block, char* smem);
//     static constexpr bool BEGINS;      // may be left out: whether `run` calls `begin` before it reads new results
//     static constexpr int MIN_BLOCKS;   // may be left out: blocks that a multiprocessor must hold at least
//
// A specialised member of a kernel family is compiled for the sizes of its operation. A general member reads them from
// its arguments (`Number`); the host then computes the number of blocks.
//
// Every operation rounds as it is written: the compiler fuses no product with a sum, because it would do so in some
// members of a family and not in others, and their bits would differ. Where one rounding is wanted, for speed or
// accuracy, a kernel says `fmaf`.
//
// Pointers come in the slot order of the operation. Use `block` instead of blockIdx.x, because several operations may
// share a launch. Values that another operation of the step writes are read with plain loads. Pointers are never `const
// __restrict__`, because the compiler could then use the non-coherent cache, which is invalid for memory that is
// written while the kernel runs.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEV static __device__ __forceinline__

struct Args {
    void* p[20];
    template <class T> __device__ __forceinline__ T* at(int slot) const { return (T*)p[slot]; }
    __device__ __forceinline__ bool has(int slot) const { return p[slot] != nullptr; }
};

// A template argument ANY says that the number is read from the kernel's arguments; LARGE says the same of a number
// that is so large that each thread should process more elements.
enum : i64 { ANY = -1, LARGE = -2 };
// Whether a kernel is compiled for this number.
__host__ __device__ constexpr bool is_fixed(i64 n) { return n >= 0; }
// A product of numbers, if the kernel is compiled for both.
__host__ __device__ constexpr i64 fixed_product(i64 a, i64 b) { return is_fixed(a) ? is_fixed(b) ? a * b : b : a; }
// A size or another non-negative number: the constant N if the kernel is compiled for it, otherwise number INDEX of the
// kernel's arguments. The numbers are stored before the flags of the launch, in reverse order.
template <i64 N, int INDEX> struct Number {
    static constexpr bool FIXED = true;
    __device__ __forceinline__ constexpr explicit Number(const Args&) {}
    __device__ __forceinline__ constexpr operator i64() const { return N; }
};
template <int INDEX> struct Number<ANY, INDEX> {
    static constexpr bool FIXED = false;
    i64 value;
    __device__ __forceinline__ explicit Number(const Args& a) : value((i64)a.p[18 - INDEX]) {}
    __device__ __forceinline__ operator i64() const { return value; }
};
template <int INDEX> struct Number<LARGE, INDEX> : Number<ANY, INDEX> { using Number<ANY, INDEX>::Number; };

// A number that is less than 2^31: arithmetic on 32 bits takes a third of the instructions.
template <i64 N, int INDEX> struct Size : Number<N, INDEX> { using Number<N, INDEX>::Number; };
template <int INDEX> struct Size<ANY, INDEX> {
    static constexpr bool FIXED = false;
    int value;
    __device__ __forceinline__ explicit Size(const Args& a) : value((int)(i64)a.p[18 - INDEX]) {}
    __device__ __forceinline__ operator int() const { return value; }
};

// Flags in the last pointer of an operation. EARLY_A, EARLY_B and EARLY_ENDS: this factor, or the data that the
// epilogue reads, may be loaded before the preceding launch is done, because that launch does not write it. OVERLAPPED:
// the next launch may start before this one ends.
enum LaunchFlags { EARLY_A = 1, EARLY_B = 2, OVERLAPPED = 4, EARLY_ENDS = 8 };

// Waits until the preceding launch is done and its results are visible, and lets the next launch start if OVERLAPPED is
// set. Code before this call must not write, and may read only results of launches before the preceding one.
static __device__ __forceinline__ u64 launch_flags(const Args& a) { return (u64)a.p[19]; }
static __device__ __forceinline__ void wait_for_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void begin(const Args& a) {
    // The flags are loaded during the wait.
    const bool overlapped = launch_flags(a) & OVERLAPPED;
    asm volatile("" ::"r"((int)overlapped));
    wait_for_launch();
#if __CUDA_ARCH__ >= 900
    if (overlapped) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether an operation calls `begin` itself.
template <class Op, class = void> struct Begins { static constexpr bool VALUE = false; };
template <class Op> struct Begins<Op, decltype((void)Op::BEGINS)> { static constexpr bool VALUE = Op::BEGINS; };

// The second launch bound of an operation, or 0 (no bound) if it declares none. Without a bound the compiler orders
// loads so as to save registers; an operation that needs all its loads in flight at once declares 1.
template <class Op, class = void> struct MinBlocks { static constexpr int VALUE = 0; };
template <class Op> struct MinBlocks<Op, decltype((void)Op::MIN_BLOCKS)> {
    static constexpr int VALUE = Op::MIN_BLOCKS;
};

__host__ __device__ constexpr int ceil_div(long long a, long long b) { return (int)((a + b - 1) / b); }
// The same for sizes, whose sum with `b` is less than 2^32.
template <i64 N, int INDEX> DEV int ceil_div(const Size<N, INDEX>& a, int b) {
    if constexpr (Size<N, INDEX>::FIXED) return ceil_div((long long)N, (long long)b);
    else return (int)(((u32)a.value + (u32)b - 1u) / (u32)b);
}
// `a / b` of two numbers that are not negative, which takes fewer instructions than a division with signs.
DEV int divide(int a, int b) { return (int)((u32)a / (u32)b); }
// A divisor of at most 256 for numbers of at most 256, by which a division is one multiplication.
struct SmallDivisor {
    int by;
    u32 inverse;
    __device__ __forceinline__ explicit SmallDivisor(int by) : by(by), inverse((65535u + by) / (u32)by) {}
    __device__ __forceinline__ operator int() const { return by; }
};
// A divisor that is used more than once, for numbers below 2^31: a division is a multiplication and one correction.
struct Divisor {
    u32 by, inverse;
    __device__ __forceinline__ explicit Divisor(int by) : by((u32)by), inverse(0xffffffffu / (u32)by) {}
};
DEV u32 quotient(u32 a, const Divisor& by) {
    const u32 low = __umulhi(a, by.inverse);
    return low + (a - low * by.by >= by.by);
}
// The same if the compiler knows the divisor.
struct KnownDivisor {
    u32 by;
    __device__ __forceinline__ constexpr explicit KnownDivisor(int by) : by((u32)by) {}
};
DEV u32 quotient(u32 a, const KnownDivisor& by) { return a / by.by; }
template <bool KNOWN> struct DivisorOf { typedef KnownDivisor Type; };
template <> struct DivisorOf<false> { typedef Divisor Type; };
DEV int quotient(int a, int by) { return a / by; }
DEV int quotient(int a, const SmallDivisor& by) { return (int)((u32)a * by.inverse >> 16); }
__host__ __device__ constexpr int min_i(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int max_i(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int power_above(int n) { return n <= 1 ? 1 : 2 * power_above((n + 1) / 2); }

// The members of operations with one phase that need neither scratch nor shared memory.
template <int THREADS_> struct OnePhase {
    static constexpr int PHASES = 1, THREADS = THREADS_;
    static constexpr i64 WORK = 0;
    static constexpr int smem(int) { return 0; }
};
// The same with one block.
template <int THREADS> struct OneBlock : OnePhase<THREADS> {
    static constexpr int blocks(int) { return 1; }
    DEV int blocks_for(const Args&, int) { return 1; }
};
// The same if each thread handles a group of V neighbours of ROWS rows of COLS values, which are the numbers ROWS_AT
// and COLS_AT.
template <i64 ROWS, int ROWS_AT, i64 COLS, int COLS_AT, int V> struct RowGroups : OnePhase<256> {
    static constexpr i64 GROUPS = ROWS * (COLS / V);
    static constexpr int blocks(int) { return ceil_div(GROUPS, THREADS); }
    DEV i64 groups_of(const Args& a) { return Number<ROWS, ROWS_AT>(a) * (Number<COLS, COLS_AT>(a) / V); }
    DEV int blocks_for(const Args& a, int) { return ceil_div(groups_of(a), THREADS); }
    // The thread's group; at least the number of groups for threads that have none.
    DEV i64 own_group(int block) { return (i64)block * THREADS + threadIdx.x; }
};

// The rows of a table and two counts, of its rows and of what they divide: constants if the kernel is compiled for
// them. A general member reads them from memory at the address that is number 0: the counts, then the rows. If
// IS_COUNTED, number 0 holds the counts, 32 bits each, and number 1 is the address of the rows, which are then read
// without waiting for the counts.
template <class Rows, i64 TOTAL, bool IS_COUNTED = false> struct RowTable {
    static constexpr int count = Rows::COUNT, total = TOTAL;
    __device__ __forceinline__ explicit RowTable(const Args&) {}
    DEV const u32* rows() { return Rows::rows(); }
};
template <class Rows, bool IS_COUNTED> struct RowTable<Rows, ANY, IS_COUNTED> {
    const u32* words;
    int count, total;
    __device__ __forceinline__ explicit RowTable(const Args& a)
        : words((const u32*)(i64)Number<ANY, IS_COUNTED ? 1 : 0>(a)) {
        if constexpr (IS_COUNTED) {
            const i64 counts = Number<ANY, 0>(a);
            count = (int)counts, total = (int)(counts >> 32);
        } else {
            count = (int)words[0], total = (int)words[1];
        }
    }
    __device__ __forceinline__ const u32* rows() const { return IS_COUNTED ? words : words + 2; }
};

// ---------------------------------------- number types

// The upper half of a float; storage only.
struct alignas(2) bf16 { u16 bits; };
// IEEE half precision; storage only.
struct alignas(2) f16 { u16 bits; };

DEV float to_float(float v) { return v; }
DEV float to_float(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
DEV float to_float(f16 v) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v.bits));
    return out;
}

template <class T> struct Narrow;
template <> struct Narrow<float> {
    DEV float of(float v) { return v; }
};
template <> struct Narrow<bf16> {
    DEV bf16 of(float v) {
        bf16 out;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
        return out;
    }
};
template <> struct Narrow<f16> {
    DEV f16 of(float v) {
        f16 out;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
        return out;
    }
};
// Rounds to T, to nearest even.
template <class T> DEV T narrow(float v) { return Narrow<T>::of(v); }

// Two 16-bit elements in a word, the first in the lower half.
template <class T> struct Pair {};
template <> struct Pair<bf16> {
    DEV void split(u32 w, float& low, float& high) {
        low = __uint_as_float(w << 16);
        high = __uint_as_float(w & 0xffff0000u);
    }
    DEV u32 join(float low, float high) {
        u32 w;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
        return w;
    }
};
template <> struct Pair<f16> {
    DEV void split(u32 w, float& low, float& high) {
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(low), "=f"(high)
            : "r"(w));
    }
    DEV u32 join(float low, float high) {
        u32 w;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
        return w;
    }
};

// V elements of T as in memory, in words: moved by accesses of up to 16 bytes.
template <class T, int V, int BYTES = V * (int)sizeof(T)> struct Raw {
    u32 w[BYTES / 4];
    __device__ __forceinline__ void widen(float (&out)[V]) const {
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < V; ++i) out[i] = __uint_as_float(w[i]);
        } else {
#pragma unroll
            for (int i = 0; i < V / 2; ++i) Pair<T>::split(w[i], out[2 * i], out[2 * i + 1]);
        }
    }
    __device__ __forceinline__ void narrow(const float (&in)[V]) {
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < V; ++i) w[i] = __float_as_uint(in[i]);
        } else {
#pragma unroll
            for (int i = 0; i < V / 2; ++i) w[i] = Pair<T>::join(in[2 * i], in[2 * i + 1]);
        }
    }
    __device__ __forceinline__ void get(const void* at) {
#pragma unroll
        for (int i = 0; i < BYTES / 16; ++i) {
            const uint4 q = ((const uint4*)at)[i];
            w[4 * i] = q.x, w[4 * i + 1] = q.y, w[4 * i + 2] = q.z, w[4 * i + 3] = q.w;
        }
        if constexpr (BYTES == 8) {
            const uint2 q = *(const uint2*)at;
            w[0] = q.x, w[1] = q.y;
        }
        if constexpr (BYTES == 4) w[0] = *(const u32*)at;
    }
    __device__ __forceinline__ void put(void* at) const {
#pragma unroll
        for (int i = 0; i < BYTES / 16; ++i)
            ((uint4*)at)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
        if constexpr (BYTES == 8) *(uint2*)at = make_uint2(w[0], w[1]);
        if constexpr (BYTES == 4) *(u32*)at = w[0];
    }
};
template <class T> struct Raw<T, 1, 2> {
    T e;
    __device__ __forceinline__ void widen(float (&out)[1]) const { out[0] = to_float(e); }
    __device__ __forceinline__ void narrow(const float (&in)[1]) { e = ::narrow<T>(in[0]); }
    __device__ __forceinline__ void get(const void* at) { e = *(const T*)at; }
    __device__ __forceinline__ void put(void* at) const { *(T*)at = e; }
};

// N neighbouring elements, moved by one access where N * sizeof(T) is 2, 4, 8 or 16 bytes.
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };

// Sets all sums of a tile to zero.
template <int A, int B, int C> DEV void clear_sums(float (&sums)[A][B][C]) {
#pragma unroll
    for (int i = 0; i < A; ++i)
#pragma unroll
        for (int j = 0; j < B; ++j)
#pragma unroll
            for (int e = 0; e < C; ++e) sums[i][j][e] = 0.0f;
}

template <class T, int N> DEV Vec<T, N> load(const T* at) { return *(const Vec<T, N>*)at; }
template <class T, int N> DEV void store(T* at, const Vec<T, N>& v) { *(Vec<T, N>*)at = v; }
// Whether rows of `n` elements of T can be moved in groups of N.
template <class T> __host__ __device__ constexpr int vec_width(long long n) {
    return n % (16 / (int)sizeof(T)) == 0 ? 16 / (int)sizeof(T)
        : n % (8 / (int)sizeof(T)) == 0 ? 8 / (int)sizeof(T)
        : (sizeof(T) == 2 && n % 2 == 0) ? 2
        : 1;
}

// ---------------------------------------- activations

enum Activation { NONE = 0, RELU = 1, LEAKY_RELU = 2, GELU = 3, SILU = 4, SIGMOID = 5, TANH = 6 };

// Functions of floats use pairs of floats where one is not accurate enough: the upper part is the rounded value, the
// lower part its rounding error. All are within two units in the last place of the exact result, in the tails too.
// Products whose rounding error is computed are never fused.
struct FloatPair { float hi, lo; };

// 2^64 and 2^-64. Tails are scaled by the first until the end, so that they are normal numbers if the result is.
static constexpr float TAIL_SCALE = 18446744073709551616.0f, TAIL_UNSCALE = 5.42101086e-20f;

// 1 / x to one unit in the last place, for x that is neither denormal nor beyond 2^126.
DEV float reciprocal(float x) {
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}
// Two to the power x, to two units in the last place; zero below the normal numbers.
DEV float exp2_approximate(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}
// Adding it rounds a small number to an integer n, which is then in the low bits of the sum. From this sum, 2^64 2^n is
// made.
static constexpr float ROUND_SHIFT = 12582912.0f;
DEV float tail_power(float shifted) { return __int_as_float((__float_as_int(shifted) + (127 + 64)) << 23); }

// e^-|x| 2^64; |x| is limited to 110, where the result is below every float.
DEV FloatPair tail_exp(float x) {
    const float size = fabsf(x), at = size > 110.0f ? -110.0f : -size;
    const float shifted = fmaf(at, 1.44269504f, ROUND_SHIFT), count = shifted - ROUND_SHIFT;
    // The difference is exact, because the upper part of ln 2 has few bits.
    const float r = fmaf(count, 1.90465430e-9f, fmaf(count, -0.69314718246f, at));
    // (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, with an error of 3e-9 relative to e^r.
    float q = 0.00138145577f;
    q = fmaf(q, r, 0.00836873577f);
    q = fmaf(q, r, 0.0416683899f);
    q = fmaf(q, r, 0.166665205f);
    q = fmaf(q, r, 0.499999934f);
    const float rise = fmaf(r * r, q, r), e = 1.0f + rise, power = tail_power(shifted);
    return FloatPair{e * power, (rise - (e - 1.0f)) * power};
}

// sigmoid(x) = the result times `scale`, which is 1 for x >= 0; `other` is sigmoid(-x) there.
DEV float sigmoid_of(float x, float& scale, float& other) {
    // e^-|x| is between 0 and 1, so that it neither overflows nor absorbs the 1.
    const bool negative = x < 0.0f;
    const FloatPair tail = tail_exp(x);
    const float sum = fmaf(tail.hi, TAIL_UNSCALE, 1.0f), rest = fmaf(tail.hi, TAIL_UNSCALE, 1.0f - sum);
    const float over = negative ? tail.hi : 1.0f, inverse = reciprocal(sum), quotient = over * inverse;
    const float left = fmaf(-quotient, rest, fmaf(-quotient, sum, over)) + (negative ? tail.lo : 0.0f);
    scale = negative ? TAIL_UNSCALE : 1.0f;
    other = tail.hi * TAIL_UNSCALE * inverse;
    return fmaf(left, inverse, quotient);
}

// With t = |x|, at most 15: the normal distribution function at -t over `bell`, which is e^(-t^2 / 2) over `power`
// 2^-64.
DEV FloatPair normal_tail(float t, FloatPair& bell, float& power) {
    const float square = t * t, square_lo = fmaf(t, t, -square);
    const float shifted = fmaf(square, -0.72134752f, ROUND_SHIFT), count = shifted - ROUND_SHIFT;
    power = tail_power(shifted);
    // The rounding error of the square; it contributes e^(-left / 2), with the coefficients of `tail_exp`.
    const float left = fmaf(count, 1.38629436493f, square), left_lo = fmaf(count, -3.80930860e-9f, square_lo),
                all = left + left_lo;
    float e = 2.15852470e-5f;
    e = fmaf(e, all, -2.61522992e-4f);
    e = fmaf(e, all, 0.00260427431f);
    e = fmaf(e, all, -2.08331505e-2f);
    e = fmaf(e, all, 0.124999985f);
    const float head = fmaf(left, -0.5f, 1.0f);
    const float more =
        fmaf(all * all, e, fmaf(left_lo, -0.5f, fmaf(left, -0.5f, 1.0f - head)));
    bell.hi = head + more;
    bell.lo = more - (bell.hi - head);
    // The quotient is a polynomial in z = 1 / (t + 3) - 7 / 64 with a relative error of 1e-8.
    const float sum = t + 3.0f, sum_lo = t - (sum - 3.0f);
    const float v = reciprocal(sum), off = fmaf(-v, sum_lo, fmaf(-v, sum, 1.0f)), z = v - 0.109375f;
    float q = -554.784912f;
    q = fmaf(q, z, 482.547089f);
    q = fmaf(q, z, -60.1043472f);
    q = fmaf(q, z, -57.4525642f);
    q = fmaf(q, z, -3.02867436f);
    q = fmaf(q, z, 11.7189589f);
    q = fmaf(q, z, 7.61964321f);
    q = fmaf(q, z, 2.91100144f);
    q = fmaf(q, z, 0.821401238f);
    // After two roundings the sum is a multiple of the same power of two as the constant, so that their difference is
    // exact.
    FloatPair m;
    m.hi = q * z + 0.0633444563f;
    // The derivative by t is t m - 1 / sqrt(2 pi); it corrects the rounding error of 1 / (t + 3).
    m.lo = fmaf(fmaf(-t, m.hi, 0.398942280f), sum * off, fmaf(q, z, 0.0633444563f - m.hi));
    return m;
}

// x times the normal distribution function at x.
DEV float gelu(float x) {
    const float size = fabsf(x), t = size > 15.0f ? 15.0f : size;
    float power;
    FloatPair bell;
    const FloatPair m = normal_tail(t, bell, power);
    const bool negative = x < 0.0f;
    const float product = m.hi * bell.hi;
    const float product_lo = fmaf(m.hi, bell.hi, -product) + fmaf(m.hi, bell.lo, m.lo * bell.hi);
    // Below zero the result is the tail, above zero it is x minus the tail.
    const float factor = t * power, base = negative ? 0.0f : t * TAIL_SCALE;
    const float y = fmaf(-factor, product, base), y_lo = fmaf(-factor, product, base - y);
    return size > 15.0f && !negative ? x : (y + fmaf(-factor, product_lo, y_lo)) * TAIL_UNSCALE;
}

// The derivative of gelu.
DEV float gelu_grad(float x) {
    const float size = fabsf(x), t = size > 15.0f ? 15.0f : size;
    float power;
    FloatPair bell;
    const FloatPair m = normal_tail(t, bell, power);
    const float rest = fmaf(-t, 0.398942280f, m.hi), rest_lo = fmaf(-t, 0.398942280f, m.hi - rest) + m.lo;
    const float below = (rest + rest_lo) * bell.hi * power * TAIL_UNSCALE;
    return x < 0.0f ? below : 1.0f - below;
}

DEV float sigmoid(float x) {
    float scale, other;
    const float s = sigmoid_of(x, scale, other);
    return s * scale;
}

// x sigmoid(x).
DEV float silu(float x) {
    float scale, other;
    const float s = sigmoid_of(x, scale, other);
    return s * (x < -110.0f ? -110.0f : x) * scale;
}

// The derivative of silu.
DEV float silu_grad(float x) {
    const float at = x < -110.0f ? -110.0f : x > 110.0f ? 110.0f : x;
    float scale, other;
    const float s = sigmoid_of(at, scale, other);
    return s * fmaf(at, x < 0.0f ? fmaf(-s, scale, 1.0f) : other, 1.0f) * scale;
}

// Single floats are accurate enough for 16-bit results, and they are faster: such kernels can use fewer instructions
// for each element before they are slower than memory.
DEV float sigmoid_for_half(float x) { return 1.0f / (1.0f + expf(-x)); }
// The probability that a normally distributed number is below x, and e^(-x^2 / 2), the `bell`. The tail is the bell
// times a polynomial of 1 / (1 + 0.3065 |x|), with a relative error of 5e-6. At -0.7518, where the derivative of gelu
// crosses zero, the polynomial is exact, so that the error of the derivative vanishes in rounding there too.
DEV float normal_cdf_for_half(float x, float& bell) {
    const float t = reciprocal(fmaf(fabsf(x), 0.3065f, 1.0f));
    bell = exp2_approximate(x * x * -0.721347520f);
    float q = -0.07664171f;
    q = fmaf(q, t, 0.19676116f);
    q = fmaf(q, t, 0.00066415186f);
    q = fmaf(q, t, 0.13894416f);
    q = fmaf(q, t, 0.1177005f);
    q = fmaf(q, t, 0.122569546f);
    q *= t;
    return x < 0.0f ? q * bell : fmaf(-q, bell, 1.0f);
}

// f(x), to be stored as a T; NaN stays NaN.
template <int F, class T = float> DEV float activate(float x) {
    constexpr bool HALF = sizeof(T) < 4;
    if constexpr (F == RELU) return x <= 0.0f ? 0.0f : x;
    if constexpr (F == LEAKY_RELU) return x <= 0.0f ? 0.01f * x : x;
    if constexpr (F == GELU) {
        float bell;
        return HALF ? x * normal_cdf_for_half(x, bell) : gelu(x);
    }
    if constexpr (F == SILU) return HALF ? x * sigmoid_for_half(x) : silu(x);
    if constexpr (F == SIGMOID) return HALF ? sigmoid_for_half(x) : sigmoid(x);
    if constexpr (F == TANH) return tanhf(x);
    return x;
}

// f' from the saved value of the function: its output for relu, leaky_relu, sigmoid and tanh, its input for gelu and
// silu. T is the type of the saved value.
template <int F, class T = float> DEV float activate_grad(float s) {
    constexpr bool HALF = sizeof(T) < 4;
    if constexpr (F == RELU) return s <= 0.0f ? 0.0f : 1.0f;
    if constexpr (F == LEAKY_RELU) return s <= 0.0f ? 0.01f : 1.0f;
    if constexpr (F == GELU) {
        if constexpr (!HALF) return gelu_grad(s);
        float bell;
        const float cdf = normal_cdf_for_half(s, bell);
        return fmaf(s * bell, 0.398942280f, cdf);
    }
    if constexpr (F == SILU) {
        if constexpr (!HALF) return silu_grad(s);
        const float t = sigmoid_for_half(s);
        return t * fmaf(s, 1.0f - t, 1.0f);
    }
    // s (1 - s) and 1 - s^2, each rounded once.
    if constexpr (F == SIGMOID) return fmaf(-s, s, s);
    if constexpr (F == TANH) return fmaf(-s, s, 1.0f);
    return 1.0f;
}

// The curved functions and their derivatives of V values at once, for kernels that read which one they apply. They are
// not inlined, because each would be repeated for every element of a thread.
template <bool IS_GRAD, int F, class T, int V> DEV Vec<float, V> curve_of_each(const Vec<float, V>& x) {
    Vec<float, V> y;
#pragma unroll
    for (int i = 0; i < V; ++i) y.v[i] = IS_GRAD ? activate_grad<F, T>(x.v[i]) : activate<F, T>(x.v[i]);
    return y;
}
template <bool IS_GRAD, class T, int V>
static __device__ __noinline__ Vec<float, V> curve_of_each(int f, Vec<float, V> x) {
    switch (f) {
        case GELU: return curve_of_each<IS_GRAD, GELU, T>(x);
        case SILU: return curve_of_each<IS_GRAD, SILU, T>(x);
        case SIGMOID: return curve_of_each<IS_GRAD, SIGMOID, T>(x);
        default: return curve_of_each<IS_GRAD, TANH, T>(x);
    }
}

// An activation and its derivative: the constant F, or ANY: read from eight bits of number INDEX, from bit SHIFT. They
// replace their V arguments.
template <int F, int INDEX, int SHIFT = 0> struct Function {
    __device__ __forceinline__ constexpr explicit Function(const Args&) {}
    template <class T, int V> __device__ __forceinline__ void of(float (&x)[V]) const {
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] = activate<F, T>(x[i]);
    }
    template <class T, int V> __device__ __forceinline__ void grad(float (&s)[V]) const {
#pragma unroll
        for (int i = 0; i < V; ++i) s[i] = activate_grad<F, T>(s[i]);
    }
};
template <int INDEX, int SHIFT> struct Function<(int)ANY, INDEX, SHIFT> {
    int f;
    __device__ __forceinline__ explicit Function(const Args& a) : f((int)(Number<ANY, INDEX>(a) >> SHIFT & 0xff)) {}
    template <class T, int V> __device__ __forceinline__ void of(float (&x)[V]) const {
        if (f >= GELU) return replace<false, T>(x);
        const float slope = f == LEAKY_RELU ? 0.01f : 1.0f;
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] = x[i] <= 0.0f ? f == RELU ? 0.0f : slope * x[i] : x[i];
    }
    template <class T, int V> __device__ __forceinline__ void grad(float (&s)[V]) const {
        if (f >= GELU) return replace<true, T>(s);
        const float slope = f == RELU ? 0.0f : f == LEAKY_RELU ? 0.01f : 1.0f;
#pragma unroll
        for (int i = 0; i < V; ++i) s[i] = s[i] <= 0.0f ? slope : 1.0f;
    }

  private:
    template <bool IS_GRAD, class T, int V> __device__ __forceinline__ void replace(float (&x)[V]) const {
        constexpr int N = min_i(V, 4);
#pragma unroll
        for (int first = 0; first < V; first += N) {
            Vec<float, N> part;
#pragma unroll
            for (int i = 0; i < N; ++i) part.v[i] = x[first + i];
            part = curve_of_each<IS_GRAD, T>(f, part);
#pragma unroll
            for (int i = 0; i < N; ++i) x[first + i] = part.v[i];
        }
    }
};

// The epilogue of a product, in this order: add the bias, store the value before the activation (save_z), apply the
// activation or multiply by another activation's derivative at `saved`. Functions that are read are in the upper 16
// bits of number AT, first the activation, then the other one.
template <bool BIAS_, int ACT_, bool SAVE_Z_, int ACT_GRAD_, int AT = 4> struct Epilogue {
    static constexpr bool BIAS = BIAS_, SAVE_Z = SAVE_Z_;
    static constexpr int ACT = ACT_, ACT_GRAD = ACT_GRAD_;
    // `v` are products (with the previous values already added), which become the results; `saved` are used only if
    // ACT_GRAD is set, and lost. `z` become the values before the activation.
    template <class T, int V>
    DEV void apply(const Args& a, float (&v)[V], const float (&bias)[V], float (&saved)[V], float (&z)[V]) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
            if constexpr (BIAS) v[i] += bias[i];
            z[i] = v[i];
        }
        if constexpr (ACT != NONE) Function<ACT, AT, 48>(a).template of<T>(v);
        if constexpr (ACT_GRAD != NONE) {
            Function<ACT_GRAD, AT, 56>(a).template grad<T>(saved);
#pragma unroll
            for (int i = 0; i < V; ++i) v[i] *= saved[i];
        }
    }
};

// ---------------------------------------- random numbers

struct Words { u32 w[4]; };

// Ten rounds of Philox4x32 (Salmon and others, 2011).
DEV Words philox(Words c, u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 even = (u64)c.w[0] * 0xd2511f53u, odd = (u64)c.w[2] * 0xcd9e8d57u;
        c = Words{{(u32)(odd >> 32) ^ c.w[1] ^ k0, (u32)odd, (u32)(even >> 32) ^ c.w[3] ^ k1, (u32)even}};
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

// The words for the elements 64 g + l + {0, 16, 32, 48}, with block = 16 g + l.
DEV Words dropout_words(i64 seed, u32 stream, i64 step, u32 block) {
    return philox(Words{{block, stream, (u32)step, (u32)((u64)step >> 32)}}, (u32)seed, (u32)((u64)seed >> 32));
}

// ---------------------------------------- reductions

struct Sum {
    static constexpr float ZERO = 0.0f;
    DEV float of(float a, float b) { return a + b; }
};
// The larger one; NaN if one is NaN.
struct MaxOrNan {
    static constexpr float ZERO = 0.0f;
    DEV float of(float a, float b) { return (b > a || b != b) ? b : a; }
};

// The larger of two integers.
struct LargerBits {
    DEV u32 of(u32 a, u32 b) { return a > b ? a : b; }
};

// Over groups of LANES neighbouring lanes, a power of two. Every lane gets its group's result; the order is fixed.
template <class R, int LANES = 32, class E> DEV E warp_reduce(E v) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask >>= 1) v = R::of(v, __shfl_xor_sync(0xffffffffu, v, mask));
    return v;
}

// Reduces P values over groups of 2 MASK neighbouring lanes, where both are powers of two and P is at most the number
// of lanes, each in the order of `warp_reduce`; lane l of a group gets the result of value l / (2 MASK / P). Each
// exchange halves the number of values of a lane.
template <class R, int P, int MASK = 16, class E> DEV E spread_reduce(const E (&v)[P]) {
    if constexpr (P == 1) return warp_reduce<R, 2 * MASK>(v[0]);
    else {
        const bool upper = threadIdx.x & MASK;
        E kept[P / 2];
#pragma unroll
        for (int i = 0; i < P / 2; ++i) {
            // Selects between values and not between addresses, so that the array stays in registers.
            const E low = v[i], high = v[i + P / 2], given = upper ? low : high;
            kept[i] = R::of(upper ? high : low, __shfl_xor_sync(0xffffffffu, given, MASK));
        }
        return spread_reduce<R, P / 2, MASK / 2>(kept);
    }
}

// Every thread of a block of THREADS gets the result. `scratch` holds THREADS / 32 floats and may be reused after the
// call.
template <class R, int THREADS> DEV float block_reduce(float v, float* scratch) {
    constexpr int WARPS = THREADS / 32;
    v = warp_reduce<R>(v);
    if constexpr (WARPS == 1) return v;
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    float out = scratch[0];
#pragma unroll
    for (int i = 1; i < WARPS; ++i) out = R::of(out, scratch[i]);
    __syncthreads();
    return out;
}

// The sums of V columns for each of `tx` neighbouring threads, where each of `lanes` rows of threads has a partial sum:
// these are written to `partial`, and `shared_by` threads of each column add up every shared_by-th lane, in rising
// order. Returns these partial results, [shared_by, tx * V] floats after the lanes, for `total_of_shares`.
template <int V, class Across>
DEV const float* share_lanes(float* partial, const float (&sum)[V], int lane, int lanes, Across tx, int shared_by) {
    const int t = threadIdx.x, width = (int)tx * V;
    if (lane < lanes) {
#pragma unroll
        for (int i = 0; i < V; ++i) partial[lane * width + (t - quotient(t, tx) * tx) * V + i] = sum[i];
    }
    __syncthreads();
    float* shares = partial + lanes * width;
    if (t < shared_by * width) {
        const int first = quotient(t, tx) / V, column = t - first * width;
        float s = 0.0f;
#pragma unroll 8
        for (int i = first; i < lanes; i += shared_by) s += partial[i * width + column];
        shares[t] = s;
    }
    __syncthreads();
    return shares;
}
// The sum of one column, in rising order of its partial results.
DEV float total_of_shares(const float* shares, int column, int width, int shared_by) {
    float s = shares[column];
#pragma unroll 8
    for (int i = 1; i < shared_by; ++i) s += shares[i * width + column];
    return s;
}

// Sums of eight columns, where thread t has a partial sum of column t % 8: adds up the four of each warp, and writes a
// sum for each warp and column to `partial`, for `total_of_warps`.
DEV void add_chunks_of_warp(float* partial, float part) {
    const int t = threadIdx.x;
    part += __shfl_xor_sync(0xffffffffu, part, 8);
    part += __shfl_xor_sync(0xffffffffu, part, 16);
    if (t % 32 < 8) partial[t / 32 * 8 + t % 8] = part;
    __syncthreads();
}
// The sum of one of the eight columns, in rising order of warps.
template <int WARPS> DEV float total_of_warps(const float* partial, int column) {
    float all = partial[column];
#pragma unroll
    for (int i = 1; i < WARPS; ++i) all += partial[i * 8 + column];
    return all;
}

// ---------------------------------------- updates of parameters

DEV float optimizer_constant(u64 bits) { return (float)__longlong_as_double((i64)bits); }
// 1 - the constant, rounded once.
DEV float optimizer_rest(u64 bits) { return (float)(1.0 - __longlong_as_double((i64)bits)); }

// The square root, to one unit of the last place.
DEV float optimizer_root(float v) {
    float out;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(out) : "f"(v));
    return out;
}

// The slot from which every rule reads the learning rate and the weight decay.
template <int FROM> struct RateAndDecay {
    float lr, wd;
    __device__ __forceinline__ void read(const Args& a) {
        lr = a.at<float>(FROM)[0];
        wd = a.at<float>(FROM)[1];
    }
};

// The constants of a rule: the bits of f64 values that the kernel is compiled for.
template <u64... BITS> struct FixedConstants {
    static constexpr int WORDS = 0;
    __device__ __forceinline__ void read_constants(const u32*) {}
    template <int I> DEV u64 bits() {
        constexpr u64 ALL[] = {BITS...};
        constexpr u64 OWN = ALL[I];
        return OWN;
    }
    template <int I> __device__ __forceinline__ float constant() const { return optimizer_constant(bits<I>()); }
    template <int I> __device__ __forceinline__ float rest() const { return optimizer_rest(bits<I>()); }
};
// The constants of a general member, which reads them from memory: each as a float, and 1 - the constant, rounded once.
template <int COUNT> struct ReadConstants {
    static constexpr int WORDS = 2 * COUNT;
    float values[COUNT], rests[COUNT];
    __device__ __forceinline__ void read_constants(const u32* words) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            values[i] = __uint_as_float(words[2 * i]), rests[i] = __uint_as_float(words[2 * i + 1]);
    }
    template <int I> __device__ __forceinline__ float constant() const { return values[I]; }
    template <int I> __device__ __forceinline__ float rest() const { return rests[I]; }
};

// Adam, or AdamW if DECOUPLED, with two decays of moments and an epsilon as constants.
template <class Constants, bool DECOUPLED>
struct AdamBy : slots::adam_step, RateAndDecay<slots::adam_step::HYPER>, Constants {
    using Slots = slots::adam_step;
    static constexpr int STATES = 2;
    // The state vectors are in consecutive slots.
    static constexpr int STATE_PREV = Slots::M_PREV, STATE = Slots::M;
    static_assert(Slots::V_PREV == STATE_PREV + 1 && Slots::V == STATE + 1, "states follow one another");
    float corr0, corr1;
    __device__ __forceinline__ void read(const Args& a) {
        RateAndDecay<HYPER>::read(a);
        corr0 = a.at<float>(CORR)[0];
        corr1 = a.at<float>(CORR)[1];
    }
    // The new parameter.
    __device__ __forceinline__ float step(float old, float grad, float& m, float& v) const {
        const float g = DECOUPLED ? grad : fmaf(wd, old, grad);
        const float decayed = DECOUPLED ? fmaf(-lr * wd, old, old) : old;
        const Constants& own = *this;
        m = fmaf(own.template constant<0>(), m, own.template rest<0>() * g);
        v = fmaf(own.template rest<1>() * g, g, own.template constant<1>() * v);
        // Accurate to two units in the last place, which the following sum rounds away; zeros, infinities and NaN give
        // the same results as an exact division.
        const float below = fmaf(optimizer_root(v), corr1, own.template constant<2>());
        return decayed - __fdividef(lr * corr0 * m, below);
    }
};
template <u64 BETA1, u64 BETA2, u64 EPS, bool DECOUPLED>
struct Adam : AdamBy<FixedConstants<BETA1, BETA2, EPS>, DECOUPLED> {};
template <bool DECOUPLED> struct AnyAdam : AdamBy<ReadConstants<3>, DECOUPLED> {};

// Gradient descent, whose constant is the momentum; with momentum, its buffer is bound.
template <class Constants, bool WITH_MOMENTUM, bool NESTEROV>
struct SgdBy : slots::sgd_step, RateAndDecay<slots::sgd_step::HYPER>, Constants {
    using Slots = slots::sgd_step;
    static constexpr int STATES = WITH_MOMENTUM ? 1 : 0;
    static constexpr int STATE_PREV = Slots::MOMENTUM_PREV, STATE = Slots::MOMENTUM;
    __device__ __forceinline__ float step(float old, float grad, float& buffer, float&) const {
        float g = fmaf(wd, old, grad);
        if constexpr (STATES == 1) {
            const float factor = Constants::template constant<0>();
            buffer = fmaf(factor, buffer, g);
            g = NESTEROV ? fmaf(factor, buffer, g) : buffer;
        }
        return fmaf(-lr, g, old);
    }
};
// A template parameter must not have the name of a slot, because it would hide the slot.
template <u64 FACTOR, bool NESTEROV> struct Sgd : SgdBy<FixedConstants<FACTOR>, FACTOR << 1 != 0, NESTEROV> {};
template <bool NESTEROV> struct AnySgd : SgdBy<ReadConstants<1>, true, NESTEROV> {};

// Lion, whose constants are the decays of the blend and of the moment.
template <class Constants> struct LionBy : slots::lion_step, RateAndDecay<slots::lion_step::HYPER>, Constants {
    using Slots = slots::lion_step;
    static constexpr int STATES = 1;
    static constexpr int STATE_PREV = Slots::M_PREV, STATE = Slots::M;
    __device__ __forceinline__ float step(float old, float grad, float& m, float&) const {
        // Products and their sum are rounded separately, as on a CPU: if they nearly cancel, the sign must be the same.
        const Constants& own = *this;
        const float kept = own.template constant<0>() * m;
        const float blend = kept + own.template rest<0>() * grad;
        // Zero and NaN are returned unchanged.
        const float direction = blend > 0.0f ? 1.0f : blend < 0.0f ? -1.0f : blend;
        m = fmaf(own.template constant<1>(), m, own.template rest<1>() * grad);
        return fmaf(-lr, direction, fmaf(-lr * wd, old, old));
    }
};
template <u64 BETA1, u64 BETA2> struct Lion : LionBy<FixedConstants<BETA1, BETA2>> {};
struct AnyLion : LionBy<ReadConstants<2>> {};

// The largest update, as the bits of a non-negative float, and the norm of the gradients. As integers, such bits have
// the same order as the floats, with NaN above all of them. This is the form in memory between operations.
struct alignas(8) UpdatePart {
    u32 max;
    float norm;
};

// The same inside an operation, with the sum of squares instead of its root. A sum of gradients scaled by SQUARE_UP is
// stored as it is if it is finite; otherwise the sum of gradients scaled by SQUARE_DOWN is stored, with a negative
// sign. Norms from 1e-28 up to the largest float are exact up to rounding; smaller ones lose digits, and gradients
// below 1e-33 count as zero.
static constexpr float SQUARE_UP = 4294967296.0f, SQUARE_DOWN = 2.71050543e-20f;
// The root of (SQUARE_DOWN / SQUARE_UP)^2.
static constexpr float SQUARE_BETWEEN = 6.31088724e-30f;
struct alignas(8) UpdateMetric {
    u32 max;
    float square;
    __device__ __forceinline__ float norm() const {
        return sqrtf(fabsf(square)) * (square < 0.0f ? 1.0f / SQUARE_DOWN : 1.0f / SQUARE_UP);
    }
};

// Metrics during the summation: the sums of squares of gradients scaled by SQUARE_UP and by SQUARE_DOWN.
struct UpdateSum {
    u32 max;
    float up, down;
    __device__ __forceinline__ void widen(u32 size) { max = max > size ? max : size; }
    __device__ __forceinline__ void add_norm(float norm) {
        const float large = norm * SQUARE_UP, small = norm * SQUARE_DOWN;
        up = fmaf(large, large, up), down = fmaf(small, small, down);
    }
    // Adds the update and the gradient of one element.
    __device__ __forceinline__ void count(float change, float grad) {
        widen(__float_as_uint(fabsf(change))), add_norm(grad);
    }
    // The same for several elements, with the second sum only if the first one overflows.
    template <int V> __device__ __forceinline__ void count_all(const float (&change)[V], const float (&grad)[V]) {
        const float before = up;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float large = grad[i] * SQUARE_UP;
            widen(__float_as_uint(fabsf(change[i]))), up = fmaf(large, large, up);
        }
        if (!isinf(up)) return;
        if (!isinf(before)) down = before * SQUARE_BETWEEN * SQUARE_BETWEEN;
#pragma unroll
        for (int i = 0; i < V; ++i) {
            const float small = grad[i] * SQUARE_DOWN;
            down = fmaf(small, small, down);
        }
    }
    // The second sum, from the first one if that is finite.
    __device__ __forceinline__ float scaled_down() const {
        return isinf(up) ? down : up * SQUARE_BETWEEN * SQUARE_BETWEEN;
    }
    __device__ __forceinline__ void add(const UpdateSum& other) {
        widen(other.max), up += other.up, down += other.down;
    }
    __device__ __forceinline__ void add(const UpdateMetric& other) {
        const bool is_small = !(other.square < 0.0f);
        widen(other.max);
        up += is_small ? other.square : __int_as_float(0x7f800000);
        down += is_small ? other.square * SQUARE_BETWEEN * SQUARE_BETWEEN : -other.square;
    }
    __device__ __forceinline__ void add(const UpdatePart& other) { widen(other.max), add_norm(other.norm); }
    __device__ __forceinline__ UpdateMetric stored() const { return UpdateMetric{max, isinf(up) ? -down : up}; }
    __device__ __forceinline__ float norm() const { return stored().norm(); }
    __device__ __forceinline__ UpdatePart part() const { return UpdatePart{max, norm()}; }
};

// Over groups of LANES neighbouring lanes, a power of two; every lane gets its group's result, and the order is fixed.
// `down` returns the lane's sum of squares of gradients scaled by SQUARE_DOWN; it is called only if the sums of a group
// are needed.
template <int LANES, class Down> DEV UpdateSum lanes_metric(u32 max, float up, const Down& down) {
    UpdateSum sum;
    if constexpr (LANES == 32) sum.max = __reduce_max_sync(0xffffffffu, max);
    else sum.max = warp_reduce<LargerBits, LANES>(max);
    sum.up = warp_reduce<Sum, LANES>(up);
    sum.down = sum.up * SQUARE_BETWEEN * SQUARE_BETWEEN;
    if (__any_sync(0xffffffffu, isinf(sum.up))) {
        const float all = warp_reduce<Sum, LANES>(down());
        if (isinf(sum.up)) sum.down = all;
    }
    return sum;
}
template <int LANES = 32> DEV UpdateSum lanes_metric(const UpdateSum& m) {
    return lanes_metric<LANES>(m.max, m.up, [&] { return m.scaled_down(); });
}

// The slots of an operation that computes a gradient and updates its parameter at once. They provide the slots of the
// rule under the names that the rule uses.
template <class Rule> struct StepSlots : slots::gradient_step {
    using Fused = slots::gradient_step;
    using Own = typename Rule::Slots;
    static_assert(Fused::PARAM_PREV == Own::PARAM_PREV && Fused::M_PREV == Rule::STATE_PREV &&
            Fused::HYPER == Own::HYPER && Fused::CORR == Own::CORR && Fused::PARAM == Own::PARAM &&
            Fused::M == Rule::STATE,
        "a rule reads the slots of both");
};

// Sets the pairs of a parameter's partial metrics after the first `count` ones to zero, up to the next multiple of 32,
// by one warp.
DEV void fill_parts(UpdatePart* parts, int count) {
    const u32 lane = threadIdx.x % 32, beyond = (u32)count % 32;
    if (beyond != 0 && lane >= beyond) parts[(u32)count - beyond + lane] = UpdatePart{0u, 0.0f};
}

// ---------------------------------------- asynchronous copies and matrix instructions

DEV u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Copies BYTES (4, 8 or 16) from global to shared memory; zeros if `valid` is false (then nothing is read).
template <int BYTES> DEV void copy_async(void* to, const void* from, bool valid) {
    const int size = valid ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
            ::"r"(shared_address(to)), "l"(from), "r"(size) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
            ::"r"(shared_address(to)), "l"(from), "n"(BYTES), "r"(size) : "memory");
}
DEV void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of the committed groups are in flight.
template <int PENDING> DEV void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Four 8x8 matrices of 16-bit elements from shared memory; `at` is this lane's row of 16 bytes.
DEV void load_matrix_x4(u32 (&r)[4], const void* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(at)) : "memory");
}
DEV void load_matrix_x4_trans(u32 (&r)[4], const void* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(at)) : "memory");
}

// The matrix instructions of warpgroups (four warps whose first is a multiple of four), which only the target sm_90a
// has; on other targets, these functions do nothing. Products run beside other instructions: registers that they read
// or write may be used again only after a wait. A group of products is what was started since the last commit.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#else
#define HAS_WARPGROUPS 0
#endif
// Orders accesses to registers before products that follow.
DEV void warpgroup_fence() {
#if HAS_WARPGROUPS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
DEV void warpgroup_commit() {
#if HAS_WARPGROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until at most PENDING groups of products are unfinished; `d` is the result of a finished one.
template <int PENDING, int N> DEV void warpgroup_wait(float (&d)[N]) {
#if HAS_WARPGROUPS
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// Makes this thread's writes to shared memory, or those that it waited for, visible to such products.
DEV void warpgroup_sees_memory() {
#if HAS_WARPGROUPS
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Describes a matrix of 16-bit numbers in shared memory with lines of 128 bytes, whose groups of 16 bytes are permuted:
// group i of the line at address 128 n has place i ^ n % 8. Where lines run along the rows of the product, `next` bytes
// lie between 64 rows and the next 64; `group` bytes lie between eight lines and the next eight.
DEV u64 warpgroup_matrix(u32 at, u32 next, u32 group) {
    return (u64)((at & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | (u64)(group >> 4) << 32 | (u64)1 << 62;
}

// Rounds to TF32 (10 bits of fraction), to nearest; the result is stored as a float. Ties go to even if the GPU has an
// instruction for that (one instruction), and away from zero otherwise (four instructions).
DEV u32 to_tf32(float v) {
    u32 out;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(out) : "f"(v));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(v));
#endif
    return out;
}

// c[16x8] += a[16x8] b[8x8], TF32 factors.
DEV void mma_tf32(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// c[16x8] += a[16x16] b[16x8].
DEV void mma_bf16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEV void mma_f16(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <class T> struct MmaHalf;
template <> struct MmaHalf<bf16> {
    DEV void of(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_bf16(c, a, b); }
};
template <> struct MmaHalf<f16> {
    DEV void of(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_f16(c, a, b); }
};
template <class T> DEV void mma_half(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { MmaHalf<T>::of(c, a, b); }
