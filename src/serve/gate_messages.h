// SPDX-License-Identifier: Apache-2.0
// The conversational part of a chat request: messages, tools, tool_choice and chat_template_kwargs
// become the JSON context of the chat template. Called by gate.cpp alone.
#pragma once

#include <string>

#include "core/result.h"
#include "serve/schema.h"

namespace tandem::serve {

// An object {"messages": [...], "tools": [...]?, "add_generation_prompt": true, kwargs...}.
// Contents of several text parts are joined without anything between them: nothing enters the
// prompt that the client did not write.
[[nodiscard]] Result<std::string> read_template_context(ObjectReader& body,
                                                        const GateLimits& limits);

}  // namespace tandem::serve
