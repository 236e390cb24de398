/**
 * The objects of the API server that decide the tables, watched and checked.
 *
 * Owns: {@link watchInputs}, the shapes that objects must have, warnings about Services. Does not know: kernels, health.
 */
export { PROXY_SELECTORS, rangesOf, serviceCIDRs, watchInputs } from "./inputs.ts";
export { SHAPES } from "./readable.ts";
export { serviceWarnings, sourceRangeFaults } from "./service-warnings.ts";
