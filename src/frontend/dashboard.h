#pragma once

#include <string_view>

namespace tidemark {

// The page behind /dashboard, src/frontend/dashboard/dashboard.html as it is. Lives as long as the program.
std::string_view DashboardHtml();

}  // namespace tidemark
