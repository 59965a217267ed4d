// Clears the memory that libraries clear between their kernels.

// to [bytes] (u8) = 0; the second slot is the number of bytes (u64) and no address. Slots: to, bytes. Works with any
// number of blocks; writes 16 bytes at once if the address allows.
struct Clear {
    enum : int { TO, BYTES };
    static constexpr int PHASES = 1, THREADS = 256;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return 1; }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int block, char*) {
        u8* to = a.at<u8>(TO);
        const u64 bytes = (u64)a.p[BYTES], first = (u64)block * THREADS + threadIdx.x,
                  stride = (u64)gridDim.x * THREADS;
        const u64 whole = (u64)to % 16 == 0 ? bytes / 16 : 0;
        for (u64 i = first; i < whole; i += stride) ((uint4*)to)[i] = make_uint4(0, 0, 0, 0);
        for (u64 i = whole * 16 + first; i < bytes; i += stride) to[i] = 0;
    }
};
