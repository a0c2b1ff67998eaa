/* light/ops/resize.h - resampling along axes: what Resize and Upsample share. Source: ONNX
 * op texts of Resize-10 to -19. */
#ifndef TD_LIGHT_OPS_RESIZE_H
#define TD_LIGHT_OPS_RESIZE_H

#include "light/op.h"

typedef enum td_resize_mode { TD_RESIZE_NEAREST, TD_RESIZE_LINEAR, TD_RESIZE_CUBIC } td_resize_mode;

typedef enum td_resize_coordinates {
    TD_RESIZE_HALF_PIXEL,
    TD_RESIZE_HALF_PIXEL_SYMMETRIC,
    TD_RESIZE_PYTORCH_HALF_PIXEL,
    TD_RESIZE_ALIGN_CORNERS,
    TD_RESIZE_ASYMMETRIC,
    TD_RESIZE_TF_CROP_AND_RESIZE,
    TD_RESIZE_TF_HALF_PIXEL_FOR_NN
} td_resize_coordinates;

typedef enum td_resize_rounding {
    TD_RESIZE_PREFER_FLOOR,
    TD_RESIZE_PREFER_CEIL,
    TD_RESIZE_FLOOR,
    TD_RESIZE_CEIL,
    TD_RESIZE_SIMPLE /* before opset 11: down, but up where the size shrinks */
} td_resize_rounding;

typedef struct td_resize_way {
    td_resize_mode mode;
    td_resize_coordinates coordinates;
    td_resize_rounding rounding;
    bool antialias, exclude_outside;
    float cubic_a, extrapolation;
} td_resize_way;

/* One axis: sizes, and the part of the input that is looked at (tf_crop_and_resize). */
typedef struct td_resize_axis {
    int64_t in, out;
    float scale, start, end;
} td_resize_axis;

/* x to y along all axes of x; y has its shape. */
treadle_status td_resize_run(td_run *r, const td_resize_way *way, const td_resize_axis axes[TD_MAX_RANK],
                             const td_tensor *x, const td_tensor *y);

#endif
