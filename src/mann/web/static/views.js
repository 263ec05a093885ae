// The views that need the server. The page that stands alone has another file of this name.

import * as results from "./results.js";
import * as versus from "./versus.js";

export const views = { versus, results };
