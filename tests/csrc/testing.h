// doctest beside torch, whose logging defines `CHECK` as well.
#pragma once

#include <c10/util/Logging.h>

#undef CHECK
#include <doctest/doctest.h>
