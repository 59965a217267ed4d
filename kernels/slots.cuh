// The slots of every operation, in the order in which kernels see their pointers.
//
// Written from the tables of src/ops by `ops::tests::the_header_of_the_kernels_is_up_to_date`; do not edit.

namespace slots {
struct product { enum : int { A = 0, B = 1, BIAS = 2, SAVED = 3, C_PREV = 4, C = 5, Z = 6, WORK = 7,
    BIAS_HALF = 8 }; };
struct gemm_norm { enum : int { A = 0, B = 1, BIAS = 2, GAMMA = 3, C_PREV = 4, C = 5, BETA = 6, WORK = 7, Y = 8,
    MEAN = 9, RSTD = 10 }; };
struct gemm_norm_bwd { enum : int { A = 0, B = 1, GAMMA = 2, X = 3, RESIDUAL = 4, C = 5, MEAN = 6, WORK = 7,
    RSTD = 8, DX = 9 }; };
struct fill { enum : int { Y = 0 }; };
struct transpose { enum : int { X = 0, Y = 1, WORK = 2 }; };
struct bias_add { enum : int { X = 0, BIAS = 1, Y = 2 }; };
struct bias_grad { enum : int { DY = 0, DB_PREV = 1, DB = 2, WORK = 3 }; };
struct add { enum : int { A = 0, B = 1, Y = 2 }; };
struct add_act { enum : int { A = 0, B = 1, SAVED = 2, Y = 3 }; };
struct cast { enum : int { X = 0, Y = 1 }; };
struct scale { enum : int { X = 0, Y = 1 }; };
struct concat { enum : int { X0 = 0, X1 = 1, X2 = 2, X3 = 3, X4 = 4, X5 = 5, X6 = 6, X7 = 7, Y = 8 }; };
struct slice { enum : int { X = 0, Y = 1 }; };
struct multiply { enum : int { A = 0, B = 1, Y = 2 }; };
struct act { enum : int { X = 0, Y = 1, WORK = 2 }; };
struct act_bwd { enum : int { DY = 0, SAVED = 1, DX = 2 }; };
struct sign_bits { enum : int { X = 0, MASK = 1 }; };
struct batch_norm { enum : int { X = 0, GAMMA = 1, BETA = 2, MEAN_PREV = 3, VAR_PREV = 4, Y = 5, MEAN = 6,
    RSTD = 7, RUNNING_MEAN = 8, RUNNING_VAR = 9, WORK = 10, RESIDUAL = 11 }; };
struct batch_norm_eval { enum : int { X = 0, GAMMA = 1, BETA = 2, RUNNING_MEAN = 3, RUNNING_VAR = 4, Y = 5 }; };
struct batch_norm_bwd { enum : int { DY = 0, X = 1, GAMMA = 2, MEAN = 3, RSTD = 4, SAVED = 5, DGAMMA_PREV = 6,
    DBETA_PREV = 7, DX = 8, DGAMMA = 9, DBETA = 10, WORK = 11 }; };
struct layer_norm { enum : int { X = 0, GAMMA = 1, BETA = 2, Y = 3, MEAN = 4, RSTD = 5 }; };
struct layer_norm_bwd { enum : int { DY = 0, X = 1, GAMMA = 2, MEAN = 3, RSTD = 4, DGAMMA_PREV = 5,
    DBETA_PREV = 6, DX = 7, DGAMMA = 8, DBETA = 9, WORK = 10, RESIDUAL = 11 }; };
struct attention { enum : int { QKV = 0, COUNTER = 1, Y = 2, LSE = 3, WORK = 4 }; };
struct attention_bwd { enum : int { DY = 0, QKV = 1, Y = 2, LSE = 3, COUNTER = 4, DX = 5, WORK = 6 }; };
struct max_pool { enum : int { X = 0, Y = 1, INDEX = 2 }; };
struct max_pool_bwd { enum : int { DY = 0, INDEX = 1, DX = 2 }; };
struct avg_pool { enum : int { X = 0, Y = 1, WORK = 2 }; };
struct avg_pool_bwd { enum : int { DY = 0, DX = 1 }; };
struct global_avg_pool { enum : int { X = 0, Y = 1, WORK = 2 }; };
struct global_avg_pool_bwd { enum : int { DY = 0, DX = 1 }; };
struct dropout { enum : int { X = 0, COUNTER = 1, Y = 2, MASK = 3 }; };
struct dropout_bwd { enum : int { DY = 0, MASK = 1, DX = 2 }; };
struct recurrence { enum : int { X = 0, WEIGHT = 1, BIAS = 2, OTHER = 3, Y = 4, GATES = 5, INNER = 6,
    BEFORE = 7, WORK = 8 }; };
struct recurrence_bwd { enum : int { DY = 0, WEIGHT = 1, GATES = 2, INNER = 3, BEFORE = 4, DX = 5, DHIDDEN = 6,
    WORK = 7 }; };
struct embedding { enum : int { TOKENS = 0, WEIGHT = 1, Y = 2, POSITION = 3 }; };
struct embedding_bwd { enum : int { TOKENS = 0, DY = 1, DWEIGHT_PREV = 2, DWEIGHT = 3 }; };
struct add_sinusoids { enum : int { X = 0, Y = 1 }; };
struct take { enum : int { X = 0, Y = 1 }; };
struct take_bwd { enum : int { DY = 0, DX = 1 }; };
struct classifier_ce { enum : int { A = 0, B = 1, BIAS = 2, LABELS = 3, DWEIGHT_PREV = 4, DB_PREV = 5, DX = 6,
    DWEIGHT = 7, DB = 8, LOSS = 9, ACCURACY = 10, WORK = 11 }; };
struct softmax_ce { enum : int { LOGITS = 0, LABELS = 1, ROW_LOSS = 2, PROBS = 3 }; };
struct softmax_ce_grad { enum : int { PROBS = 0, LABELS = 1, DLOGITS = 2, SCALE = 3 }; };
struct softmax_ce_fused { enum : int { LOGITS = 0, LABELS = 1, DLOGITS = 2, LOSS = 3, ACCURACY = 4, WORK = 5,
    SCALE = 6, TICKET = 7 }; };
struct dense_ce { enum : int { A = 0, B = 1, BIAS = 2, LABELS = 3, SAVED = 4, SCALE = 5, DLOGITS = 6,
    ROW_LOSS = 7, ROW_RIGHT = 8, DX = 9 }; };
struct loss_mean { enum : int { ROW_LOSS = 0, LOSS = 1, ROW_RIGHT = 2, ACCURACY = 3 }; };
struct accuracy { enum : int { SCORES = 0, LABELS = 1, ACCURACY = 2 }; };
struct mse { enum : int { Y = 0, TARGET = 1, LOSS = 2, WORK = 3 }; };
struct mse_grad { enum : int { Y = 0, TARGET = 1, DY = 2, SCALE = 3 }; };
struct mse_fused { enum : int { Y = 0, TARGET = 1, DY = 2, LOSS = 3, WORK = 4, SCALE = 5, TICKET = 6 }; };
struct point_loss { enum : int { Y = 0, TARGET = 1, LOSS = 2, WORK = 3 }; };
struct point_loss_grad { enum : int { Y = 0, TARGET = 1, DY = 2, SCALE = 3 }; };
struct point_loss_fused { enum : int { Y = 0, TARGET = 1, DY = 2, LOSS = 3, ACCURACY = 4, WORK = 5, SCALE = 6,
    TICKET = 7 }; };
struct binary_accuracy { enum : int { Y = 0, TARGET = 1, ACCURACY = 2 }; };
struct step_inc { enum : int { COUNTER_PREV = 0, COUNTER = 1, SCALER = 2 }; };
struct bias_corr { enum : int { COUNTER = 0, CORR = 1, SKIPPED = 2 }; };
struct scale_update { enum : int { GRAD = 0, SCALER_PREV = 1, SCALER = 2, WORK = 3, TICKET = 4 }; };
struct grad_norms { enum : int { GRAD = 0, GRAD_NORM_SEG = 1, WORK = 2, SCALER = 3 }; };
struct update_rates { enum : int { HYPER = 0, COUNTER = 1, STEPS = 2, GRAD_NORM_SEG = 3, RATES = 4 }; };
struct adam_step { enum : int { PARAM_PREV = 0, GRAD = 1, M_PREV = 2, V_PREV = 3, HYPER = 4, CORR = 5,
    PARAM = 6, M = 7, V = 8, UPDATE_MAX = 9, GRAD_NORM_SEG = 10, WORK = 11, SCALER = 12, SHADOW = 13,
    TOTAL_MAX = 14, GRAD_NORM = 15, TICKET = 16 }; };
struct sgd_step { enum : int { PARAM_PREV = 0, GRAD = 1, MOMENTUM_PREV = 2, HYPER = 3, PARAM = 4, MOMENTUM = 5,
    UPDATE_MAX = 6, GRAD_NORM_SEG = 7, WORK = 8, SCALER = 9, SHADOW = 10, TOTAL_MAX = 11, GRAD_NORM = 12,
    TICKET = 13 }; };
struct lion_step { enum : int { PARAM_PREV = 0, GRAD = 1, M_PREV = 2, HYPER = 3, PARAM = 4, M = 5,
    UPDATE_MAX = 6, GRAD_NORM_SEG = 7, WORK = 8, SCALER = 9, SHADOW = 10, TOTAL_MAX = 11, GRAD_NORM = 12,
    TICKET = 13 }; };
struct gradient_step { enum : int { PARAM_PREV = 0, A = 1, M_PREV = 2, V_PREV = 3, HYPER = 4, CORR = 5,
    PARAM = 6, M = 7, V = 8, PARTS = 9, B = 10, WORK = 11, SHADOW = 12 }; };
struct update_metrics { enum : int { UPDATE_MAX_SEG = 0, GRAD_NORM_SEG = 1, UPDATE_MAX = 2, GRAD_NORM = 3 }; };
struct step_metrics { enum : int { PARTS = 0, UPDATE_MAX_SEG = 1, GRAD_NORM_SEG = 2, UPDATE_MAX = 3,
    GRAD_NORM = 4 }; };
}  // namespace slots
