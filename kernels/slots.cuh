// The slots of every operation, in the order in which kernels see their pointers.
//
// Written from the tables of src/ops by the test `ops::tests::the_header_of_the_kernels_is_up_to_date`; do not edit.

namespace slots {
namespace product { constexpr int A = 0, B = 1, BIAS = 2, SAVED = 3, C_PREV = 4, C = 5, Z = 6, WORK = 7,
    BIAS_HALF = 8; }
namespace fill { constexpr int Y = 0; }
namespace transpose { constexpr int X = 0, Y = 1, WORK = 2; }
namespace bias_add { constexpr int X = 0, BIAS = 1, Y = 2; }
namespace bias_grad { constexpr int DY = 0, DB_PREV = 1, DB = 2, WORK = 3; }
namespace add { constexpr int A = 0, B = 1, Y = 2; }
namespace add_act { constexpr int A = 0, B = 1, SAVED = 2, Y = 3; }
namespace cast { constexpr int X = 0, Y = 1; }
namespace act { constexpr int X = 0, Y = 1, WORK = 2; }
namespace act_bwd { constexpr int DY = 0, SAVED = 1, DX = 2; }
namespace sign_bits { constexpr int X = 0, MASK = 1; }
namespace batch_norm { constexpr int X = 0, GAMMA = 1, BETA = 2, MEAN_PREV = 3, VAR_PREV = 4, Y = 5, MEAN = 6,
    RSTD = 7, RUNNING_MEAN = 8, RUNNING_VAR = 9, WORK = 10, RESIDUAL = 11; }
namespace batch_norm_eval { constexpr int X = 0, GAMMA = 1, BETA = 2, RUNNING_MEAN = 3, RUNNING_VAR = 4, Y = 5; }
namespace batch_norm_bwd { constexpr int DY = 0, X = 1, GAMMA = 2, MEAN = 3, RSTD = 4, SAVED = 5,
    DGAMMA_PREV = 6, DBETA_PREV = 7, DX = 8, DGAMMA = 9, DBETA = 10, WORK = 11; }
namespace layer_norm { constexpr int X = 0, GAMMA = 1, BETA = 2, Y = 3, MEAN = 4, RSTD = 5; }
namespace layer_norm_bwd { constexpr int DY = 0, X = 1, GAMMA = 2, MEAN = 3, RSTD = 4, DGAMMA_PREV = 5,
    DBETA_PREV = 6, DX = 7, DGAMMA = 8, DBETA = 9, WORK = 10; }
namespace max_pool { constexpr int X = 0, Y = 1, INDEX = 2; }
namespace max_pool_bwd { constexpr int DY = 0, INDEX = 1, DX = 2; }
namespace avg_pool { constexpr int X = 0, Y = 1, WORK = 2; }
namespace avg_pool_bwd { constexpr int DY = 0, DX = 1; }
namespace global_avg_pool { constexpr int X = 0, Y = 1, WORK = 2; }
namespace global_avg_pool_bwd { constexpr int DY = 0, DX = 1; }
namespace dropout { constexpr int X = 0, COUNTER = 1, Y = 2, MASK = 3; }
namespace dropout_bwd { constexpr int DY = 0, MASK = 1, DX = 2; }
namespace softmax_ce { constexpr int LOGITS = 0, LABELS = 1, ROW_LOSS = 2, PROBS = 3; }
namespace softmax_ce_grad { constexpr int PROBS = 0, LABELS = 1, DLOGITS = 2, SCALE = 3; }
namespace softmax_ce_fused { constexpr int LOGITS = 0, LABELS = 1, DLOGITS = 2, LOSS = 3, ACCURACY = 4, WORK = 5,
    SCALE = 6, TICKET = 7; }
namespace dense_ce { constexpr int A = 0, B = 1, BIAS = 2, LABELS = 3, SAVED = 4, SCALE = 5, DLOGITS = 6,
    ROW_LOSS = 7, ROW_RIGHT = 8, DX = 9; }
namespace loss_mean { constexpr int ROW_LOSS = 0, LOSS = 1, ROW_RIGHT = 2, ACCURACY = 3; }
namespace accuracy { constexpr int SCORES = 0, LABELS = 1, ACCURACY = 2; }
namespace mse { constexpr int Y = 0, TARGET = 1, LOSS = 2, WORK = 3; }
namespace mse_grad { constexpr int Y = 0, TARGET = 1, DY = 2, SCALE = 3; }
namespace mse_fused { constexpr int Y = 0, TARGET = 1, DY = 2, LOSS = 3, WORK = 4, SCALE = 5, TICKET = 6; }
namespace step_inc { constexpr int COUNTER_PREV = 0, COUNTER = 1; }
namespace bias_corr { constexpr int COUNTER = 0, CORR = 1, SKIPPED = 2; }
namespace scale_update { constexpr int GRAD = 0, SCALER_PREV = 1, SCALER = 2, WORK = 3, TICKET = 4; }
namespace adam_step { constexpr int PARAM_PREV = 0, GRAD = 1, M_PREV = 2, V_PREV = 3, HYPER = 4, CORR = 5,
    PARAM = 6, M = 7, V = 8, UPDATE_MAX = 9, GRAD_NORM_SEG = 10, WORK = 11, SCALER = 12, SHADOW = 13,
    TOTAL_MAX = 14, GRAD_NORM = 15, TICKET = 16; }
namespace sgd_step { constexpr int PARAM_PREV = 0, GRAD = 1, MOMENTUM_PREV = 2, HYPER = 3, PARAM = 4,
    MOMENTUM = 5, UPDATE_MAX = 6, GRAD_NORM_SEG = 7, WORK = 8, SCALER = 9, SHADOW = 10, TOTAL_MAX = 11,
    GRAD_NORM = 12, TICKET = 13; }
namespace gradient_step { constexpr int PARAM_PREV = 0, A = 1, M_PREV = 2, V_PREV = 3, HYPER = 4, CORR = 5,
    PARAM = 6, M = 7, V = 8, PARTS = 9, B = 10, WORK = 11, SHADOW = 12; }
namespace update_metrics { constexpr int UPDATE_MAX_SEG = 0, GRAD_NORM_SEG = 1, UPDATE_MAX = 2, GRAD_NORM = 3; }
namespace step_metrics { constexpr int PARTS = 0, UPDATE_MAX_SEG = 1, GRAD_NORM_SEG = 2, UPDATE_MAX = 3,
    GRAD_NORM = 4; }
}  // namespace slots
