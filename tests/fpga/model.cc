/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fpga/model.h"

#include <cstring>
#include <new>

#include "Vregion.h"
#include "verilated.h"

namespace {

struct Region {
	VerilatedContext context;
	Vregion top{ &context };
};

void edge(Vregion &top)
{
	top.clk = 1;
	top.eval();
	top.clk = 0;
	top.eval();
}

void *create()
{
	Region *region = new (std::nothrow) Region;

	if (!region)
		return nullptr;
	region->top.clk = 0;
	region->top.rst = 1;
	region->top.eval();
	edge(region->top);
	edge(region->top);
	region->top.rst = 0;
	region->top.eval();
	return region;
}

void destroy(void *region)
{
	delete static_cast<Region *>(region);
}

void drive(Vregion &top, const model_port *port)
{
	top.wr_valid = port->wr_valid;
	top.wr_window = top.rd_window = port->window;
	top.wr_reg = top.rd_reg = port->reg;
	top.wr_data = port->wr_data;
	top.ready = port->ready;
	top.answer = port->answer;
	top.answer_to = port->answer_to;
	if (port->answer)
		memcpy(top.answer_data.data(), port->answer_data, MODEL_BEAT_BYTES);
}

void settle(void *region, model_port *port)
{
	Vregion &top = static_cast<Region *>(region)->top;

	port->ready = 0;
	drive(top, port);
	top.eval();
	port->rd_data = top.rd_data;
	port->req = top.req;
	port->we = top.we;
	port->from = top.from;
	port->addr = top.addr;
	port->lanes = top.lanes;
	if (port->we)
		memcpy(port->data, top.data.data(), MODEL_BEAT_BYTES);
}

void clock(void *region, model_port *port)
{
	Vregion &top = static_cast<Region *>(region)->top;

	drive(top, port);
	edge(top);
}

}

extern "C" __attribute__((visibility("default"))) const model model_entry = { create, destroy, settle,
									     clock };
