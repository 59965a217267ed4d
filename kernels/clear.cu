// What libraries zero between their kernels.

// to [BYTES] (bytes) = 0. Slots: to. Writes BYTES bytes, 16 at once where the address allows.
template <int BYTES> struct Clear {
    static constexpr int PHASES = 1, THREADS = BYTES > 512 ? 256 : 32;
    static constexpr i64 WORK = 0;
    static constexpr int blocks(int) { return min_i(256, max_i(1, ceil_div(BYTES / 16, THREADS))); }
    static constexpr int smem(int) { return 0; }
    template <int PHASE> static __device__ void run(const Args& a, int, char*) {
        unsigned char* to = a.at<unsigned char>(0);
        const int first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
        const int whole = reinterpret_cast<unsigned long long>(to) % 16 == 0 ? BYTES / 16 : 0;
        for (int i = first; i < whole; i += stride) reinterpret_cast<uint4*>(to)[i] = make_uint4(0, 0, 0, 0);
        for (int i = whole * 16 + first; i < BYTES; i += stride) to[i] = 0;
    }
};
